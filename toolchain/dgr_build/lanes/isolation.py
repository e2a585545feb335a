"""Running a build with the network cut off, where the machine lets us."""

from __future__ import annotations

import shutil

from dgr_build.process import run

# The caller stays who it is inside: a mapped root could write into the read-only source.
_CUT = ("unshare", "--user", "--map-current-user", "--net", "--")


def without_network() -> tuple[str, ...]:
    """Return the words to put before a command to cut its network, none where the machine refuses."""
    if shutil.which(_CUT[0]) is None:
        return ()
    return _CUT if run([*_CUT, "true"], timeout=30).returncode == 0 else ()
