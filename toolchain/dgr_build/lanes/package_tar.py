"""The tarball of a worker: the same bytes wherever, whenever and by whomever it is packed."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING

from dgr_build.lanes.package import PROGRAM, Subject, check_subject, manifest, readme
from dgr_build.workspace import publish, staging, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dgr_build.lanes.package_target import Target

_LEVEL = 6  # stated: the default of another Python may differ
_PROGRAM_MODE, _FOLDER_MODE, _FILE_MODE = 0o755, 0o755, 0o644


def make_tar(subject: Subject, out: Path) -> Path:
    """Pack a worker and put the tarball into `out`; one of the same name is replaced.

    Raises:
        CheckError: the worker is not what the subject says it is.
        UsageError: version, requirements or licenses make no sense.
    """
    target = check_subject(subject)
    top = f"{subject.distribution}-{subject.version}-{target.system}-{target.machine}"
    sweep(out, "tar-")
    with staging(out, f"tar-{subject.lane}") as folder:
        text = folder / "README.txt"
        text.write_text(readme(subject, target, _start(subject, target, top)), encoding="utf-8")
        files = {f"bin/{PROGRAM}": subject.worker, "README.txt": text}
        files |= {f"LICENSES/{name}.txt": path for name, path in subject.licenses.items()}
        about = folder / "MANIFEST.json"
        about.write_bytes(manifest(subject, target, files))
        packed = folder / "packed"
        _pack(packed, top, {**files, "MANIFEST.json": about}, subject.epoch)
        packed.chmod(_FILE_MODE)
        final = out / f"{top}.tar.gz"
        publish(packed, final)
    return final


def _pack(path: Path, top: str, files: Mapping[str, Path], epoch: int) -> None:
    folders = {"", *(name.rpartition("/")[0] for name in files)}
    with (
        path.open("wb") as raw,
        # no name, no time: both would go into the header
        gzip.GzipFile("", "wb", compresslevel=_LEVEL, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(folders | set(files)):
            info = tarfile.TarInfo(f"{top}/{name}".rstrip("/"))  # owner and group stay 0 and nameless
            info.mtime = epoch
            if name in folders:
                info.type, info.mode = tarfile.DIRTYPE, _FOLDER_MODE
                tar.addfile(info, io.BytesIO())
                continue
            info.mode = _PROGRAM_MODE if name.startswith("bin/") else _FILE_MODE
            info.size = files[name].stat().st_size
            with files[name].open("rb") as content:
                tar.addfile(info, content)


def _start(subject: Subject, target: Target, top: str) -> str:
    lines = ["Start it where it was unpacked", f"    {top}/bin/{PROGRAM} --help"]
    if subject.requires:
        lines += [
            "It looks for the libraries of the Python packages beside the folder that it was unpacked to:",
            f"    python3 -m pip install --target . {' '.join(subject.requires)}",
        ]
    elif [path for path in target.loader_paths if path not in {"$ORIGIN", "@loader_path"}]:
        lines.append(f"It looks for libraries in {', '.join(target.loader_paths)} first.")
    return "\n".join(lines)
