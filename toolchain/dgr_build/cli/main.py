"""The root of the command line: gathers the command groups and turns errors into exit codes."""

from __future__ import annotations

import errno
import shlex
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from dgr_build import console, process
from dgr_build.errors import EXIT_INTERRUPTED, EXIT_OK, DgrError, HostError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
GROUPS = (
    "source", "patch", "doctor", "env", "lane", "matrix", "model", "run", "top", "certs", "evidence", "bench",
    "test", "fuzz", "soak",
)  # fmt: skip


def build_app(groups: Sequence[str] = GROUPS) -> typer.Typer:
    """Assemble command groups into one application."""
    app = typer.Typer(
        name="dgr-build",
        help="Build a llama.cpp shard worker from one proven commit and a tiny patch stack, and run a model "
        "over several of them. Start with: dgr-build lane cpu",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name in groups:
        if find_spec(f"dgr_build.cli.{name}"):
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
        code = build_app(_asked_for(argv))(argv or ["--help"], prog_name="dgr-build", standalone_mode=False)
    except DgrError as error:
        return _report(error, argv)
    except typer.TyperException as error:
        if error.format_message().startswith("Usage:"):  # a group without a command: its help is the answer
            console.say(error.format_message())
            return UsageError.exit_code
        return _report(_usage(error), argv)
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except OSError as error:
        return _report(_refused(error) if error.errno in _REFUSALS else _bug(error, argv), argv)
    except Exception as error:  # noqa: BLE001 - the last line of defence turns a bug into a report
        return _report(_bug(error, argv), argv)
    if code == EXIT_INTERRUPTED:
        console.say("interrupted; nothing was left half done")
    return code if isinstance(code, int) else EXIT_OK


def _asked_for(argv: Sequence[str]) -> Sequence[str]:
    """Return the group that is asked for, so that a start loads no more than it needs, or all of them."""
    if "--version" in argv:
        return ()
    first = next((word for word in argv if not word.startswith("-")), None)
    return (first,) if first in GROUPS else GROUPS


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # noqa: PLC0415 - slow to import, and only this needs it

        console.result(f"dgr-build {metadata.version('dgr-build')}")
        raise typer.Exit


def _root(
    *,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print each program that is started, as it could be typed."),
    ] = False,
) -> None:
    process.watch((lambda command: console.say(f"$ {command}")) if verbose else None)


def _report(error: DgrError, argv: list[str]) -> int:
    if "--json" in argv:
        console.result_json(error.to_json())
    console.report(error)
    return error.exit_code


def _refused(error: OSError) -> DgrError:
    return HostError(
        f"cannot use {error.filename or 'a file'}",
        cause=error.strerror or str(error),
        remedy="make it writable and leave space on it, or move it: DGR_WORKSPACE, DGR_CACHE, DGR_MODELS",
    )


def _usage(error: typer.TyperException) -> DgrError:
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "dgr-build"
    return UsageError(error.format_message(), remedy=f"{where} --help shows what can be typed")


def _bug(error: Exception, argv: list[str]) -> DgrError:
    return DgrError(
        f"a bug in dgr-build: {type(error).__name__}: {error}",
        cause="".join(traceback.format_exception(error)),
        remedy=f"report it with the lines above and this command: dgr-build {shlex.join(argv)}",
    )
