"""The root of the command line: gathers the command groups and turns errors into exit codes."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module

import click
import typer

from dgr_build import console
from dgr_build.errors import EXIT_INTERRUPTED, EXIT_OK, DgrError

_GROUPS = ("source", "patch", "lane", "model", "run", "evidence", "test")


def build_app() -> typer.Typer:
    """Assemble the command groups into one application."""
    app = typer.Typer(
        name="dgr-build",
        help="Build a llama.cpp shard worker from one proven commit and a tiny patch stack, and run a model "
        "over several of them. Start with: dgr-build lane cpu",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name in _GROUPS:
        import_module(f"dgr_build.cli.{name}").register(app)
    return app


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with the code of its error kind."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    """Run the command line and return the exit code.

    With --json among the arguments, errors go to stdout as data too.
    """
    try:
        code = build_app()(argv, prog_name="dgr-build", standalone_mode=False)
    except DgrError as error:
        if "--json" in argv:
            console.result_json(error.to_json())
        console.report(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        console.say("interrupted; nothing was left half done")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence turns a bug into a report
        return _report_bug(error, argv)
    return code if isinstance(code, int) else EXIT_OK


def _report_bug(error: Exception, argv: list[str]) -> int:
    bug = DgrError(
        f"a bug in dgr-build: {type(error).__name__}: {error}",
        cause="".join(traceback.format_exception(error)),
        remedy=f"report it with the lines above and this command: dgr-build {' '.join(argv)}",
    )
    if "--json" in argv:
        console.result_json(json.loads(json.dumps(bug.to_json())))
    console.report(bug)
    return bug.exit_code
