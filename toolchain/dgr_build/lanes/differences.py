"""Where two builds of the same thing differ, and what diffoscope makes of it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from dgr_build.errors import HostError
from dgr_build.lanes.archives import sha256_file
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_CHUNK = 1 << 20
_PROGRAM = "diffoscope"
_REPORT_BYTES = 2_000_000
_EXCERPT_LINES, _EXCERPT_COLUMNS = 12, 160
_GRACE_S = 30.0
_BUILD_ID = ".note.gnu.build-id"
_NAMED = 5  # sections that are named before the rest is only counted
_DIFFERENT = 1  # diffoscope's exit code; 2 is trouble


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One output that two builds made differently.

    Args:
        output: its name.
        first: what the first build made, None where it made nothing.
        second: what the second build made, None where it made nothing.
        offset: of the first byte that differs; None where there are not two files, or only names differ.
        where: the sections, or the member of an archive and what of it, "" where that is not known.
    """

    output: str
    first: Path | None
    second: Path | None
    offset: int | None = None
    where: str = ""

    @property
    def line(self) -> str:
        """The difference in a line."""
        if self.first is None or self.second is None:
            return f"{self.output}: only the {'second' if self.first is None else 'first'} build made it"
        if self.offset is None:
            return f"{self.output}: {self.where}"
        inside = f" ({self.where})" if self.where else ""
        return f"{self.output}: differs from byte {self.offset} on{inside}"


def compare(first: Mapping[str, Path], second: Mapping[str, Path]) -> tuple[Difference, ...]:
    """Return where the outputs of two builds differ, in the order of the first; none where they are equal.

    Args:
        first: what the first build made, by name.
        second: what the second build made.
    """
    found: list[Difference] = []
    for name in dict.fromkeys([*first, *second]):
        ours, theirs = first.get(name), second.get(name)
        if ours is None or theirs is None:
            found.append(Difference(output=name, first=ours, second=theirs))
        elif ours.name != theirs.name:
            where = f"is called {ours.name} and {theirs.name}"
            found.append(Difference(output=name, first=ours, second=theirs, where=where))
        elif sha256_file(ours) != sha256_file(theirs):
            found.append(
                Difference(
                    output=name,
                    first=ours,
                    second=theirs,
                    offset=first_offset(ours, theirs),
                    where=_where(ours, theirs),
                )
            )
    return tuple(found)


def first_offset(first: Path, second: Path) -> int:
    """Return the offset of the first byte in which two files differ; the shorter size where one ends."""
    offset = 0
    with first.open("rb") as one, second.open("rb") as other:
        while True:
            ours, theirs = one.read(_CHUNK), other.read(_CHUNK)
            if ours != theirs or not ours:
                same = zip(ours, theirs, strict=False)
                at = next((at for at, (a, b) in enumerate(same) if a != b), min(len(ours), len(theirs)))
                return offset + at
            offset += len(ours)


def explain(difference: Difference, report: Path, limit_s: float) -> str:
    """Have diffoscope explain a difference and return the beginning of what it says.

    Args:
        difference: of two files.
        report: where the whole text goes.
        limit_s: how long it may take.

    Returns:
        a few lines; why there are none, where diffoscope is missing or did not come to an end.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        return f"{_PROGRAM} is not installed, so nothing explains it: apt-get install diffoscope-minimal"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command: list[str | Path] = [
        program, "--no-progress", "--exclude-directory-metadata=yes", "--timeout", str(int(limit_s)),
        "--max-text-report-size", str(_REPORT_BYTES), "--text", report,
        difference.first or "", difference.second or "",
    ]  # fmt: skip
    try:
        done = run(command, timeout=limit_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        return f"{_PROGRAM} was ended after {limit_s + _GRACE_S:.0f} s"
    except HostError as error:
        return error.message
    if done.returncode != _DIFFERENT or not report.is_file():
        return f"{_PROGRAM} cannot tell: {done.stderr.strip()[-_EXCERPT_COLUMNS * 2 :]}"
    return _excerpt(report.read_text(errors="replace"))


def _excerpt(text: str) -> str:
    """Return the lines of a report that say what differs: texts first, then tables and hex dumps."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.lstrip("│ ").startswith("├"):
            parts.append([])
        parts[-1].append(line)
    parts.sort(key=lambda part: not (part and "strings" in part[0]))
    told = [line for part in parts for line in part if line.lstrip("│ ").startswith(("├", "+", "-"))]
    shown = [line[:_EXCERPT_COLUMNS] for line in told[:_EXCERPT_LINES]]
    return "\n".join([*shown, *(["..."] if len(told) > _EXCERPT_LINES else [])])


def _where(first: Path, second: Path) -> str:
    readers = {".whl": _zip_members, ".gz": _tar_members}
    reader = readers.get(first.suffix)
    if reader is None:
        return _sections(first, second)
    try:
        for ours, theirs in zip_longest(reader(first), reader(second)):
            if ours != theirs:
                return _named(ours, theirs)
    except (OSError, tarfile.TarError, zipfile.BadZipFile):
        return ""
    return "how it is packed, not what is in it"


def _sections(first: Path, second: Path) -> str:
    """Return the sections in which two ELF files differ; the build id, a hash of the others, comes last."""
    try:
        ours, theirs = _contents(first), _contents(second)
    except (ELFError, OSError):
        return ""
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    names.sort(key=lambda name: name == _BUILD_ID)
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"sections {', '.join([*names[:_NAMED], *more])}" if names else "headers"


def _contents(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        return {
            section.name: hashlib.sha256(section.data()).hexdigest()
            for section in ELFFile(file).iter_sections()
            if section["sh_type"] not in {"SHT_NOBITS", "SHT_NULL"}
        }


def _named(ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> str:
    if ours is None or theirs is None:
        return f"{(ours or theirs or {}).get('name')} is in one of them only"
    if ours["name"] != theirs["name"]:
        return f"{ours['name']} stands where the other has {theirs['name']}"
    fields = ", ".join(f"{key} {ours[key]} and {theirs[key]}" for key in ours if ours[key] != theirs[key])
    return f"{ours['name']}: {fields}"


def _zip_members(path: Path) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            yield {
                "name": info.filename,
                "mode": f"{info.external_attr >> 16:o}",
                "time": info.date_time,
                "crc": f"{info.CRC:08x}",
                "size": info.file_size,
            }


def _tar_members(path: Path) -> Iterator[dict[str, Any]]:
    with tarfile.open(path) as archive:
        for info in archive:
            content = archive.extractfile(info)
            yield {
                "name": info.name,
                "mode": f"{info.mode:o}",
                "time": info.mtime,
                "owner": (info.uid, info.gid, info.uname, info.gname),
                "size": info.size,
                "sha256": hashlib.sha256(content.read()).hexdigest()[:16] if content is not None else "",
            }
