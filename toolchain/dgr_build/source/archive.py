"""Taking git objects out of a source distribution: only objects, only plain files, nothing is run."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from typing import IO, TYPE_CHECKING

from dgr_build import console
from dgr_build.errors import ProofError
from dgr_build.source.store import index_pack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# No index (we make our own), no alternates (they point to other folders), no config, hooks, refs or logs.
_OBJECT = re.compile(r"pack/(pack-[0-9a-f]{40}\.pack)|([0-9a-f]{2}/[0-9a-f]{38})")
_CHUNK = 1 << 20
_MAX_OBJECTS = 500_000


class _Bounded(gzip.GzipFile):
    """A gzip stream whose reader may not be talked into one huge read by the size field of a header."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _CHUNK:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)


def extract_objects(archive: Path, inner: str, objects: Path, *, limit: int) -> None:
    """Extract the git objects below one folder of a gzipped tar into an objects folder, and index the packs.

    Names never become paths: only `pack/pack-ID.pack` and `xx/ID` right below `TOP/inner/objects/` are taken.

    Args:
        archive: the .tar.gz file.
        inner: the git folder inside the archive's top folder.
        objects: the folder to fill.
        limit: how many bytes may come out; more is refused.

    Raises:
        ProofError: it is not such an archive, or it holds no objects there, or links in their place.
    """
    (objects / "pack").mkdir(parents=True, exist_ok=True)
    total, count = 0, 0
    try:
        for name, size, source in _objects(archive, f"/{inner}/objects/"):
            total, count = total + size, count + 1
            if total > limit or count > _MAX_OBJECTS:
                raise ProofError(f"{archive.name} holds too many objects", cause=f"{count}, {total} bytes")
            _write(source, objects / name)
    except FileExistsError as error:
        raise ProofError(f"{archive.name} holds an object twice", cause=str(error)) from error
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the archive's
            raise
        raise ProofError(
            f"{archive.name} is no complete .tar.gz file", cause=f"{type(error).__name__}: {error}"
        ) from error
    if not count:
        raise ProofError(f"{archive.name} holds no git objects in {inner}")
    for pack in sorted((objects / "pack").glob("*.pack")):
        console.say(f"indexing {pack.name}")
        index_pack(pack)


def _objects(archive: Path, wanted: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield the name below objects/, the size and the content of each object file of an archive."""
    whole = archive.stat().st_size
    with (
        archive.open("rb") as raw,
        console.progress("extracting objects", whole, unit="bytes") as task,
        _Bounded(fileobj=raw, mode="rb") as stream,
        tarfile.open(fileobj=stream, mode="r:") as tar,
    ):
        for member in tar:
            task.update(done=raw.tell())
            top, found, name = member.name.removeprefix("./").partition(wanted)
            if not found or "/" in top or not _OBJECT.fullmatch(name):
                continue
            source = tar.extractfile(member) if member.isreg() else None
            if source is None:
                raise ProofError(
                    f"{archive.name}: {member.name} is no plain file", cause="links are not followed"
                )
            yield name, member.size, source
        task.update(done=whole)


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    with target.open("xb") as file:
        while chunk := source.read(_CHUNK):
            file.write(chunk)
