"""Lets the launcher run the toolchain as `python -m dgr_build`."""

from dgr_build.cli.main import main

main()
