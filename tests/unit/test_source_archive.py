from __future__ import annotations

import gzip
import io
import struct
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from dgr_build.errors import ProofError
from dgr_build.source.archive import extract_objects
from dgr_build.source.proof import prove_tree
from dgr_build.source.store import opened

_INNER = ".git/modules/up"
_ID = "0" * 38


def _member(name: str, content: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(member, key, value)
    return member, content


def _extract(archive: Path, folder: Path, limit: int = 1 << 24) -> set[str]:
    extract_objects(archive, _INNER, folder / "objects", limit=limit)
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


@pytest.mark.parametrize("loose", [False, True])
def test_objects_come_out_and_prove_themselves(upstream, sdist_of, tmp_path: Path, loose: bool) -> None:
    tree = upstream.tree()
    archive = sdist_of(upstream, tmp_path / "a.tar.gz", loose=loose)
    _extract(archive, tmp_path / "out")
    with opened(tmp_path / "out" / "objects") as store:
        assert prove_tree(store, tree).files > 0


def test_only_objects_come_out(upstream, sdist_of, tmp_path: Path) -> None:
    more = [
        _member(f"top-1.0/{_INNER}/{name}")
        for name in (
            *("config", "hooks/post-checkout", "objects/info/alternates", "objects/pack/pack-1.pack", "HEAD"),
            *(f"objects/pack/pack-{'0' * 40}.idx", f"objects/pack/pack-{'0' * 40}.keep", "objects/zz/" + _ID),
            *(f"objects/../objects/aa/{_ID}", f"objects/aa/../../../{_ID}", f"objects//aa/{_ID}"),
            *(f"objects/aa/{_ID}/x", f"objects/AA/{_ID}", "objects/aa/" + "0" * 37, "../" * 9 + "etc/x"),
        )
    ]
    more += [_member(f"/{_INNER}/objects/aa/{_ID}"[1:]), _member(f"a/b/{_INNER}/objects/aa/{_ID}")]
    more += [_member("/etc/evil"), _member("../../evil")]
    found = _extract(sdist_of(upstream, tmp_path / "a.tar.gz", more=more), tmp_path / "out")
    assert {Path(name).suffix for name in found} == {".pack", ".idx"}
    assert len(found) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz", "out", "upstream"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_anything_but_a_plain_file_in_an_objects_place_is_refused(
    upstream, sdist_of, tmp_path: Path, kind: bytes
) -> None:
    bad = _member(f"top-1.0/{_INNER}/objects/aa/{_ID}", b"", type=kind, linkname="/etc/passwd")
    with pytest.raises(ProofError):
        _extract(sdist_of(upstream, tmp_path / "a.tar.gz", more=[bad]), tmp_path / "out")
    assert not (tmp_path / "out/objects/aa").exists()


def test_object_that_comes_twice_is_refused(upstream, sdist_of, tmp_path: Path) -> None:
    twice = [_member(f"top-1.0/{_INNER}/objects/aa/{_ID}")] * 2
    with pytest.raises(ProofError):
        _extract(sdist_of(upstream, tmp_path / "a.tar.gz", more=twice), tmp_path / "out")


def test_archive_that_unpacks_without_limit_is_refused(upstream, sdist_of, tmp_path: Path) -> None:
    archive = sdist_of(
        upstream, tmp_path / "a.tar.gz", more=[_member(f"t/{_INNER}/objects/aa/{_ID}", b"0" * 9999)]
    )
    with pytest.raises(ProofError):
        _extract(archive, tmp_path / "out", limit=9000)


def test_archive_without_objects_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(*[tarfile.TarInfo("top/setup.py")])
    with pytest.raises(ProofError):
        _extract(tmp_path / "a.tar.gz", tmp_path / "out")


@pytest.mark.parametrize(
    "content", [b"", b"<html>not found</html>", b"\x1f\x8b\x08\x00" + b"\xff" * 50, b"PK\3\4"]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(ProofError):
        _extract(tmp_path / "a.tar.gz", tmp_path / "out")


def test_cut_archive_is_refused(upstream, sdist_of, tmp_path: Path) -> None:
    archive = sdist_of(upstream, tmp_path / "a.tar.gz")
    whole = archive.read_bytes()
    for length in (10, len(whole) // 2, len(whole) - 300):
        archive.write_bytes(whole[:length])
        with pytest.raises(ProofError):
            _extract(archive, tmp_path / f"out{length}")


def test_huge_header_is_not_read_into_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 33
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) as stream:
        stream.write(header.tobuf())
        for _ in range(64):
            stream.write(b"\0" * (1 << 20))
    (tmp_path / "a.tar.gz").write_bytes(raw.getvalue())
    tracemalloc.start()
    with pytest.raises(ProofError):
        _extract(tmp_path / "a.tar.gz", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_wrong_index_in_the_archive_is_not_believed(upstream, sdist_of, tmp_path: Path) -> None:
    tree = upstream.tree()
    upstream.git("repack", "-adq")
    index = next(upstream.objects.glob("pack/*.idx"))
    index.chmod(0o644)
    index.write_bytes(b"\xfftOc" + struct.pack(">L", 2) + bytes(1024 + 40))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(upstream.objects, f"top-1.0/{_INNER}/objects")
    _extract(tmp_path / "a.tar.gz", tmp_path / "out")
    with opened(tmp_path / "out" / "objects") as store:
        prove_tree(store, tree)


def test_damaged_pack_in_the_archive_is_refused(upstream, tmp_path: Path) -> None:
    upstream.git("repack", "-adq")
    pack = next(upstream.objects.glob("pack/*.pack"))
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(upstream.objects, f"top-1.0/{_INNER}/objects")
    with pytest.raises(ProofError):
        _extract(tmp_path / "a.tar.gz", tmp_path / "out")
