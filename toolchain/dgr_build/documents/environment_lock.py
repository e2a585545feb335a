"""The lock of an environment: every file it is made of, one line each, so that it can be made again."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StringConstraints, ValidationError, model_validator

from dgr_build.documents.base import Document, Sha256, digest
from dgr_build.errors import UsageError
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

# What a line can hold: printable, no blank, no folder, no comment, nothing that starts like an option.
Word = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][!-.0-~]*$")]
_HEAD = "# lock of environment"
_DEFINITION = re.compile(r"^# definition ([0-9a-f]{64})$")
_COLUMNS = "# package version file bytes sha256"


class LockedFile(Document):
    """One file of an environment.

    Attributes:
        package: its package.
        version: the package's version, in full.
        file: the file's name, as it lies in the cache.
        size: in bytes.
        sha256: of its content.
    """

    package: Word
    version: Word
    file: Word
    size: Annotated[int, Field(ge=1)]
    sha256: Sha256


class EnvironmentLock(Document):
    """All files of an environment.

    Attributes:
        definition: digest of the definition that the lock was made for.
        files: sorted by package and file.
    """

    definition: Sha256
    files: Annotated[tuple[LockedFile, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _sorted_once(self) -> EnvironmentLock:
        names = [file.file for file in self.files]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} stands in it twice")
        wrong = next((b.file for a, b in pairwise(self.files) if order(b) < order(a)), None)
        if wrong is not None:
            raise ValueError(f"its lines are not sorted by package and file: {wrong} comes too late")
        return self

    @property
    def digest(self) -> str:
        """The environment's digest: of definition and files."""
        return digest(self.model_dump(mode="json"))

    @property
    def size(self) -> int:
        """What has to be downloaded for it at most, in bytes."""
        return sum(file.size for file in self.files)


def order(file: LockedFile) -> tuple[str, str]:
    """Return what files are sorted by."""
    return file.package, file.file


def load_lock(path: Path) -> EnvironmentLock:
    """Read a lock.

    Raises:
        UsageError: it is not there, or not one; the line is named.
    """
    remedy = f"dgr-build env lock {path.stem} writes it anew"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the lock {path}", cause=str(error), remedy=remedy) from error
    definition = next((found[1] for line in lines if (found := _DEFINITION.match(line))), "")
    files: list[dict[str, str]] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != len(_COLUMNS.split()) - 1:
            raise UsageError(
                f"{path}:{number}: {len(words)} columns, there must be 5", cause=line, remedy=remedy
            )
        files.append(dict(zip(LockedFile.model_fields, words, strict=True)))
        numbers.append(number)
    try:
        return EnvironmentLock.model_validate({"definition": definition, "files": files})
    except ValidationError as error:
        first = error.errors()[0]
        where = first["loc"]
        at = f":{numbers[int(where[1])]}" if len(where) > 1 else ""
        what = f"{where[-1]}: {first['msg']}" if where else first["msg"]
        raise UsageError(f"{path}{at} is not a lock", cause=what, remedy=remedy) from error


def save_lock(path: Path, lock: EnvironmentLock) -> None:
    """Write a lock, by rename."""
    lines = [f"{_HEAD} {path.stem}; made by dgr-build env lock", f"# definition {lock.definition}", _COLUMNS]
    lines += [f"{f.package} {f.version} {f.file} {f.size} {f.sha256}" for f in lock.files]
    write_atomic(path, ("\n".join(lines) + "\n").encode())
