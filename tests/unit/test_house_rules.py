"""The rules of the house, checked on the text of every tracked file."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from dgr_build.cli import main as cli

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = _ROOT / "toolchain" / "dgr_build"
_MODULES = sorted(path for path in _PACKAGE.rglob("*.py") if not path.stem.endswith(("_pb2", "_pb2_grpc")))
_MAX_LINES = 400

_STARTERS = {
    "os": {"system", "popen", "posix_spawn", "posix_spawnp", "fork", "forkpty"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
}
_PATH_CHOICES = re.compile(r"Path\.home\(|expanduser|gettempdir|\btempfile\b|XDG_|Path\.cwd\(|os\.getcwd\(")
_REGISTRY_HOSTS = re.compile(r"\b(pypi|pythonhosted|npmjs|debian)[.](org|com|net)\b")
_MACHINE_PATHS = re.compile(r"(^|[^A-Za-z0-9_.])/((work|farm)|tmp/w)/|\.\./shared\b")


@cache
def _tracked() -> tuple[Path, ...]:
    """Every file of the project as git lists it, or, in an unpacked archive, every file that is not made."""
    git = ["git", "-c", f"safe.directory={_ROOT}", "-C", str(_ROOT), "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run([*git, "--exclude-standard"], capture_output=True, check=False)
    if listed.returncode == 0:
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
        return tuple(_ROOT / name for name in names if (_ROOT / name).is_file())
    made = {".venv", ".dgr", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
    return tuple(path for path in _ROOT.rglob("*") if path.is_file() and not made & set(path.parts))


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


def _matching(pattern: re.Pattern[str], paths: tuple[Path, ...]) -> list[str]:
    found = []
    for path in paths:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{_name(path)}:{n}" for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    return found


def _starts_programs(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, attribute = node.value.id, node.attr
            starts = attribute in _STARTERS.get(module, ()) or (
                module == "os" and attribute.startswith(("exec", "spawn"))
            )
            names = [f"{module}.{attribute}"] if starts else []
            found += names
            continue
        else:
            continue
        found += [name for name in names if name.split(".")[0] in {"subprocess", "multiprocessing", "pty"}]
    return found


@pytest.mark.parametrize("path", [p for p in _MODULES if p.name != "process.py"], ids=_name)
def test_only_process_starts_programs(path: Path) -> None:
    # Naming an exception of subprocess is no start.
    found = [name for name in _starts_programs(path) if not name.startswith("subprocess.Timeout")]
    if found == ["subprocess"]:
        uses = set(re.findall(r"subprocess\.(\w+)", path.read_text()))
        imports = set(re.findall(r"from subprocess import (\w+)", path.read_text()))
        found = sorted((uses | imports) - {"PIPE", "STDOUT", "DEVNULL", "TimeoutExpired"})
    assert found == []


def test_the_check_for_started_programs_sees_them(tmp_path: Path) -> None:
    for line in ("import subprocess", "from multiprocessing import Process", "import os\nos.execv('a', [])"):
        (tmp_path / "m.py").write_text(line)
        assert _starts_programs(tmp_path / "m.py")


def test_only_workspace_chooses_paths() -> None:
    others = tuple(path for path in _MODULES if path.name != "workspace.py")
    assert _matching(_PATH_CHOICES, others) == []


def test_nothing_tracked_names_a_registry_host() -> None:
    assert _matching(_REGISTRY_HOSTS, tuple(p for p in _tracked() if p.suffix != ".patch")) == []


def test_nothing_tracked_names_a_machine_or_its_surroundings() -> None:
    assert _matching(_MACHINE_PATHS, tuple(p for p in _tracked() if p.suffix != ".patch")) == []


def test_there_are_no_submodules() -> None:
    assert not (_ROOT / ".gitmodules").exists()


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_a_module_is_one_concept_small_and_explained(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= _MAX_LINES
    assert ast.get_docstring(ast.parse(text))


def test_every_folder_of_modules_is_a_package_with_a_docstring() -> None:
    for folder in {path.parent for path in _MODULES}:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_every_command_group_exists() -> None:
    assert [name for name in cli.GROUPS if not (_PACKAGE / "cli" / f"{name}.py").is_file()] == []


def _commands(command: object, words: tuple[str, ...]) -> list[tuple[tuple[str, ...], object]]:
    inner = getattr(command, "commands", None)
    if not inner:
        return [(words, command)]
    return [leaf for name, sub in inner.items() for leaf in _commands(sub, (*words, name))]


def test_every_command_explains_itself_with_an_example() -> None:
    wanting = []
    for words, command in _commands(typer.main.get_command(cli.build_app()), ("dgr-build",)):
        text = getattr(command, "help", None) or ""
        if len(text.split()) < 8 or " ".join(words) not in text:
            wanting.append(" ".join(words))
    assert wanting == []


def test_every_option_explains_itself() -> None:
    wanting = [
        f"{' '.join(words)} {parameter.opts[0]}"
        for words, command in _commands(typer.main.get_command(cli.build_app()), ("dgr-build",))
        for parameter in command.params
        if not parameter.help
    ]
    assert wanting == []


def _remedies() -> list[tuple[str, str]]:
    found = []
    for path in _MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "remedy":
                parts = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
                found += [(_name(path), str(part)) for part in parts]
    return found


def test_every_command_that_a_remedy_or_the_readme_names_exists() -> None:
    known = [words[1:] for words, _ in _commands(typer.main.get_command(cli.build_app()), ("dgr-build",))]
    shown = [("README.md", line) for line in (_ROOT / "README.md").read_text().splitlines()]
    shown = [(where, line) for where, line in shown if re.match(r"\s*(\$ )?(\./)?dgr-build ", line)]
    unknown = []
    for where, text in [*_remedies(), *shown]:
        for typed in re.findall(r"dgr-build ((?:[a-z0-9-]+ ?)+)", text):
            words = tuple(typed.split())
            if not any(words[: len(command)] == command for command in known) and not words[0].startswith(
                "-"
            ):
                unknown.append(f"{where}: dgr-build {typed}")
    assert unknown == []


def test_the_launcher_can_bootstrap_with_the_standard_library_alone() -> None:
    # -S leaves site-packages out, as on a machine where nothing is installed yet.
    script = "import sys; sys.path.insert(0, sys.argv[1]); import dgr_build.bootstrap"
    subprocess.run([sys.executable, "-I", "-S", "-c", script, str(_PACKAGE.parent)], check=True)


def test_every_module_imports() -> None:
    for path in _MODULES:
        if path.name != "__main__.py":
            parts = path.relative_to(_PACKAGE.parent).with_suffix("").parts
            import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def test_the_lock_is_hashed_and_names_no_place() -> None:
    text = (_ROOT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(entries) > 20
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_the_lock_covers_what_the_project_asks_for() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    locked = set(re.findall(r"^([a-z0-9-]+)==", (_ROOT / "requirements.lock").read_text(), re.MULTILINE))
    names = {re.split(r"[<>=!~\[; ]", requirement)[0].lower().replace(".", "-") for requirement in asked}
    assert names - locked == set()
