"""The patch series: which patches in which order, and what each one does to which blob."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt, StringConstraints

from dgr_build.documents.base import Document, Sha1, Sha256, load_toml
from dgr_build.errors import PatchError

NO_BLOB = "0" * 40
DEFAULT_UPSTREAM = "not submitted"
PATCH_NAME = re.compile(r"^([0-9]{2,6})-[a-z0-9]+(?:-[a-z0-9]+)*\.patch$")

_Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$")]


class FileEntry(Document):
    """What a patch does to one file; forty zeros stand for "not there" (added or deleted)."""

    path: _Line
    before: Sha1
    after: Sha1


class PatchEntry(Document):
    """One patch: its file, what it is for, and the tree that it must lead to."""

    file: _Line
    sha256: Sha256
    purpose: _Line
    upstream: _Line = DEFAULT_UPSTREAM
    tree: Sha1
    added: Annotated[int, Field(ge=0)]
    removed: Annotated[int, Field(ge=0)]
    files: Annotated[tuple[FileEntry, ...], Field(min_length=1)]


class Limits(Document):
    """What the whole stack may do to upstream; beyond it `verify` refuses."""

    added: PositiveInt = 130
    files: PositiveInt = 15
    untouched: tuple[_Line, ...] = ("ggml/",)
    new_files: bool = False


class Series(Document):
    """The stack: the commit and tree that it stands on, its limits, and its patches in order."""

    base_commit: Sha1
    base_tree: Sha1
    limits: Limits = Limits()
    patches: tuple[PatchEntry, ...] = ()

    @property
    def tree(self) -> str:
        """The id of the patched tree: after the last patch."""
        return self.patches[-1].tree if self.patches else self.base_tree


def load_series(path: Path) -> Series:
    """Read `series.toml` and check it against the patch files that lie beside it.

    Raises:
        UsageError: the file is missing, is not TOML, or a field is wrong.
        PatchError: the numbering has gaps, doubles or mixed widths, or the series and the folder
            disagree on which patches there are.
    """
    series = load_toml(path, Series)
    check_names(series, path)
    check_folder(series, path)
    return series


def check_names(series: Series, where: Path) -> None:
    """Check that the patches are numbered 1, 2, 3... in one width, each number once.

    Raises:
        PatchError: they are not.
    """
    numbers: dict[int, str] = {}
    names: set[str] = set()
    width = 0
    for position, entry in enumerate(series.patches, start=1):
        match = PATCH_NAME.fullmatch(entry.file)
        if match is None:
            raise PatchError(
                f"{where}: {entry.file!r} is no patch name",
                cause="a name is NNNN-some-words.patch, in lower case",
                remedy=f"rename the file and its entry, for example {position:04d}-some-words.patch",
            )
        if entry.file in names:
            raise PatchError(
                f"{where}: {entry.file} is listed twice", remedy=f"remove the second entry from {where}"
            )
        names.add(entry.file)
        number = int(match[1])
        if number in numbers:
            raise PatchError(
                f"{where}: number {number} is used by {numbers[number]} and by {entry.file}",
                cause="two branches both added a patch with the next free number",
                remedy="renumber: stack one commit on the other in a work tree of the patched source, then "
                "dgr-build patch export --from THAT-TREE numbers them anew",
            )
        numbers[number] = entry.file
        width = width or len(match[1])
        if len(match[1]) != width:
            raise PatchError(
                f"{where}: {entry.file} is numbered in {len(match[1])} digits, the first patch in {width}",
                cause="mixed widths sort differently as text and as numbers",
                remedy=f"rename it to {number:0{width}d}{entry.file[len(match[1]) :]}, in {where} too",
            )
        if number != position:
            raise PatchError(
                f"{where}: {entry.file} is patch {position} of the series",
                cause=f"numbers run 1, 2, 3 without gaps in the declared order; {position} was expected",
                remedy=f"restore the missing patch, or renumber: name it {position:0{width}d}"
                f"{entry.file[len(match[1]) :]}, or run dgr-build patch export --from THE-WORK-TREE",
            )


def check_folder(series: Series, where: Path) -> None:
    """Check that the folder of `where` holds exactly the patch files that the series lists.

    Raises:
        PatchError: a file is missing or is not listed.
    """
    listed = {entry.file for entry in series.patches}
    present = {file.name for file in where.parent.iterdir() if file.suffix.lower() in {".patch", ".diff"}}
    for name in sorted(listed - present):
        raise PatchError(
            f"{where} lists {name}, but there is no such file",
            remedy=f"git checkout -- {where.parent / name}, or remove its entry",
        )
    for name in sorted(present - listed):
        match = PATCH_NAME.fullmatch(name)
        double = next((e.file for e in series.patches if match and e.file.startswith(match[1] + "-")), None)
        raise PatchError(
            f"{where.parent / name} is not in {where.name}",
            cause=f"its number is already used by {double}"
            if double
            else "a patch that is not listed is never applied",
            remedy="remove the file, or put its commit onto the stack and renumber: "
            "dgr-build patch export --from THE-WORK-TREE",
        )
