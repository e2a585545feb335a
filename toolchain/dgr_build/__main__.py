"""Lets the launcher run the toolchain as `python -m dgr_build`."""

import gc

# Hundreds of modules that stay are loaded first: looking for garbage among them costs a sixth of a second.
gc.set_threshold(100_000)

from dgr_build.cli.main import main  # noqa: E402 - the threshold must come before

main()
