"""The licenses of the libraries that were linked into a worker, as Debian's packages carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def archive_licenses(archives: Sequence[Path], root: Path) -> dict[str, Path]:
    """Return the license files of the packages that archives were installed by, by the packages' names.

    Archives of no package (built by hand, another system) are left out.

    Args:
        archives: static libraries below `root`.
        root: of the file system whose dpkg installed them: / or a sysroot.
    """
    sought = {f"/{path.relative_to(root)}" for path in archives}
    sought |= {name.removeprefix("/usr") for name in sought}  # installed through /lib, a link to /usr/lib
    found: dict[str, Path] = {}
    for listing in sorted((root / "var" / "lib" / "dpkg" / "info").glob("*.list")):
        if sought.isdisjoint(listing.read_text(encoding="utf-8", errors="replace").splitlines()):
            continue
        package = listing.stem.partition(":")[0]
        license_file = root / "usr" / "share" / "doc" / package / "copyright"
        if license_file.is_file():
            found[package] = license_file
    return found
