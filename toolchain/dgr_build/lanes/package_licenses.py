"""The licenses of the libraries that are in a worker, as Debian's packages carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


# Of these nothing is linked: the worker is compiled with what their headers say.
_HEADERS = ("/usr/include/CLI/CLI.hpp", "/usr/include/fmt/format.h", "/usr/include/spdlog/spdlog.h")


def linked_licenses(archives: Sequence[Path], root: Path) -> dict[str, Path]:
    """Return the license files of the packages that went into a worker, by the packages' names.

    These are the packages that archives were installed by, and those that are headers alone.

    Archives of no package (built by hand, another system) are left out.

    Args:
        archives: static libraries below `root`.
        root: of the file system whose dpkg installed them: / or a sysroot.
    """
    sought = {f"/{path.relative_to(root)}" for path in archives} | set(_HEADERS)
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
