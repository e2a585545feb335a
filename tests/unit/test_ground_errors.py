from __future__ import annotations

import io
import json
from typing import Annotated

import pytest
import typer
from rich.console import Console

from dgr_build import console, errors, process
from dgr_build.cli import main as cli


def _kinds() -> list[type[errors.DgrError]]:
    return [errors.DgrError, *errors.DgrError.__subclasses__()]


def test_exit_codes_are_the_published_ones() -> None:
    assert {kind.__name__: kind.exit_code for kind in _kinds()} == {
        "DgrError": 1,
        "UsageError": 2,
        "HostError": 3,
        "SourceUnavailableError": 4,
        "ProofError": 5,
        "PatchError": 6,
        "BuildError": 7,
        "CheckError": 8,
        "ArtifactError": 9,
        "RouteError": 10,
    }


def test_every_kind_has_an_exit_code_and_a_name_of_its_own() -> None:
    kinds = _kinds()
    assert len({kind.exit_code for kind in kinds}) == len(kinds)
    assert len({kind.kind for kind in kinds}) == len(kinds)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    """Make `dgr-build` a single command that does what the test says."""

    def install(action) -> None:
        def build(_groups: object) -> typer.Typer:
            app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

            @app.command()
            def go(*, go: bool = False, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
                action()

            return app

        monkeypatch.setattr(cli, "build_app", build)

    return install


def _raise(error: BaseException):
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize("kind", _kinds())
def test_an_error_becomes_its_exit_code_and_tells_what_to_do(command, capsys, kind) -> None:
    command(_raise(kind("it broke", cause="because", remedy="do this")))
    assert cli.run(["--go"]) == kind.exit_code
    printed = capsys.readouterr()
    assert printed.out == ""
    for text in ("it broke", "because", "do this"):
        assert text in printed.err


def test_json_prints_the_error_as_data(command, capsys) -> None:
    command(_raise(errors.ProofError("tree differs", cause="c", remedy="r")))
    assert cli.run(["--json"]) == 5
    assert json.loads(capsys.readouterr().out) == {
        "error": "proof",
        "exit_code": 5,
        "message": "tree differs",
        "cause": "c",
        "remedy": "r",
    }


def test_ctrl_c_is_130(command) -> None:
    command(_raise(KeyboardInterrupt()))
    assert cli.run(["--go"]) == 130


def test_a_bug_is_1_with_what_a_report_needs(command, capsys) -> None:
    command(_raise(ZeroDivisionError("boom")))
    assert cli.run(["--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"] == "internal"
    for text in ("ZeroDivisionError", "Traceback", "report it", "dgr-build --json"):
        assert text in printed.err


def test_usage_mistake_is_2_and_points_to_the_help(command, capsys) -> None:
    command(lambda: None)
    assert cli.run(["--no-such-option"]) == 2
    assert "--help" in capsys.readouterr().err


def test_exit_code_of_a_command_is_kept(command) -> None:
    command(_raise(typer.Exit(8)))
    assert cli.run(["--go"]) == 8


def test_version_and_help_are_results(capsys) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("dgr-build ")
    assert cli.run([]) == 0
    assert "dgr-build lane cpu" in capsys.readouterr().out


def test_verbose_shows_the_programs_that_are_started(capsys) -> None:
    try:
        cli._root(verbose=True)
        process.run(["true"])
    finally:
        process.watch(None)
    assert "$ true" in capsys.readouterr().err


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", wanted)
        out = io.StringIO()
        monkeypatch.setattr(console, "_err", Console(file=out, force_terminal=True, color_system="standard"))
        console.warn("careful")
        assert ("\x1b[33m" in out.getvalue()) is coloured


def test_progress_in_a_log_says_each_tenth(capsys) -> None:
    with console.progress("copying", 100) as task:
        for _ in range(100):
            task.advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert "100 of 100" in lines[-1]
