"""The platform wheel of a worker, made by scikit-build-core from a small project that is staged for it.

The worker lies in the package's folder, two levels below site-packages, so that a run path of
`$ORIGIN/../../nvidia/cu13/lib` finds what the wheels of a vendor installed there. The program on PATH is a
console script that becomes the worker, so that signals and the exit code are the worker's own.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import tomli_w

from dgr_build.errors import BuildError
from dgr_build.lanes.package import PROGRAM, Subject, check_subject, manifest, readme
from dgr_build.lanes.package_target import platform_tag
from dgr_build.process import run
from dgr_build.workspace import publish, staging, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dgr_build.lanes.package_target import Target

_NEUTRAL = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
_TIMEOUT_S = 1800  # a worker with code for many GPUs takes minutes to compress

# The backend's hook, in a process of its own: it reads the current folder and the environment.
# Tags are taken from a caller only, never from pyproject.toml.
_HOOK = (
    "import sys; from scikit_build_core.build import build_wheel; "
    "build_wheel(sys.argv[1], {'wheel.tags': sys.argv[2]})"
)

_INIT = '''"""The shard worker of lane {lane}; `dgr-shard-worker` or `python -m {module}` starts it."""

import os
import sys
from pathlib import Path

WORKER = Path(__file__).resolve().parent / "bin" / "{program}"


def main():
    """Become the worker, with the arguments of this process."""
    os.execv(WORKER, [str(WORKER), *sys.argv[1:]])
'''
_MAIN = "from . import main\n\nmain()\n"
_START = """Start it by its name, or as python3 -m {module} where another lane's package has the name too
    dgr-shard-worker --help"""


def make_wheel(subject: Subject, out: Path) -> Path:
    """Make the wheel of a worker and put it into `out`; one of the same name is replaced.

    Raises:
        BuildError: scikit-build-core failed.
        CheckError: the worker is not what the subject says it is.
        UsageError: version, requirements or licenses make no sense.
    """
    target = check_subject(subject)
    sweep(out, "wheel-")
    with staging(out, f"wheel-{subject.lane}") as folder:
        project, built, scratch = folder / "project", folder / "built", folder / "tmp"
        for each in (project, built, scratch):
            each.mkdir()
        _write_project(subject, target, project)
        tag = f"py3-none-{platform_tag(target, subject.provided)}"
        # Nothing of the caller's environment: settings of the backend can be given there too.
        variables = {"SOURCE_DATE_EPOCH": str(subject.epoch), "TMPDIR": str(scratch), **_NEUTRAL}
        made = _build(project, built, tag, variables)
        made.chmod(0o644)
        final = out / made.name
        publish(made, final)
    return final


def _write_project(subject: Subject, target: Target, project: Path) -> None:
    module = subject.distribution.replace("-", "_")
    words = {"lane": subject.lane, "module": module, "program": PROGRAM}
    texts = {
        "__init__.py": _INIT.format(**words),
        "__main__.py": _MAIN,
        "README.txt": readme(subject, target, _START.format(**words)),
        "LICENSES.txt": _licenses(subject.licenses),
    }
    for name, text in texts.items():
        (project / name).write_text(text, encoding="utf-8")
    worker = project / PROGRAM
    shutil.copyfile(subject.worker, worker)
    worker.chmod(0o755)
    inside = {f"{module}/bin/{PROGRAM}": PROGRAM}
    inside |= {f"{module}/{name}": name for name in ("__init__.py", "__main__.py")}
    about = manifest(subject, target, {path: project / name for path, name in inside.items()})
    (project / "MANIFEST.json").write_bytes(about)
    inside[f"{module}/MANIFEST.json"] = "MANIFEST.json"
    settings = tomli_w.dumps(_pyproject(subject, module, inside))
    (project / "pyproject.toml").write_text(settings, encoding="utf-8")


def _pyproject(subject: Subject, module: str, inside: Mapping[str, str]) -> dict[str, Any]:
    return {
        "build-system": {"requires": ["scikit-build-core"], "build-backend": "scikit_build_core.build"},
        "project": {
            "name": subject.distribution,
            "version": subject.version,
            "description": f"Shard worker of lane {subject.lane}: serves a range of a model's layers",
            "readme": {"file": "README.txt", "content-type": "text/plain"},
            "requires-python": ">=3.9",
            "dependencies": list(subject.requires),
            # One file: the backend adds several in the order in which the file system lists them.
            "license-files": ["LICENSES.txt"],
            "scripts": {PROGRAM: f"{module}:main"},
        },
        "tool": {
            "scikit-build": {
                "minimum-version": "1.1",
                "cmake": {
                    "version": ">=3.25"
                },  # none is run; unstated it would be looked for in a CMakeLists.txt
                "wheel": {
                    "cmake": False,
                    "packages": [],
                    "platlib": True,
                    "reproducible": True,
                    "force-include": {source: path for path, source in inside.items()},
                },
            }
        },
    }


def _licenses(licenses: Mapping[str, Path]) -> str:
    rule = "=" * 80
    parts = (
        f"{rule}\n{name}\n{rule}\n\n{path.read_text(encoding='utf-8', errors='replace').rstrip()}\n"
        for name, path in sorted(licenses.items())
    )
    return "\n".join(parts)


def _build(project: Path, built: Path, tag: str, variables: Mapping[str, str]) -> Path:
    command: list[str | Path] = [sys.executable, "-I", "-c", _HOOK, built, tag]
    done = run(command, cwd=project, env=variables, timeout=_TIMEOUT_S)
    made = sorted(built.glob("*.whl"))
    if done.returncode != 0 or len(made) != 1:
        raise BuildError(
            "scikit-build-core made no wheel",
            cause=(done.stdout + done.stderr).strip(),
            remedy="run ./dgr-build: it installs the version that the project is locked to",
        )
    return made[0]
