"""The command line: it parses arguments, calls the package and prints results.

Exit codes: 0 for success; 1 if the work failed or was interrupted; 2 if the call or the input was
wrong. A failure prints one line on stderr that says what to do, or a list of all problems of files;
a bug prints its traceback. With ``--json``, stdout is exactly one JSON object.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from dropnode import __version__
from dropnode.cli.attack import attack
from dropnode.cli.bench import bench
from dropnode.cli.common import USAGE_ERROR, WORK_ERROR
from dropnode.cli.convert import convert
from dropnode.cli.datasets import datasets_app
from dropnode.cli.explain import explain
from dropnode.cli.fit import fit
from dropnode.cli.inspect import inspect
from dropnode.cli.lists import experiments, methods, presets
from dropnode.cli.predict import predict
from dropnode.cli.report import report
from dropnode.cli.reproduce import reproduce
from dropnode.cli.serve import serve
from dropnode.cli.train import train
from dropnode.cli.trials import trials
from dropnode.cli.tune import tune
from dropnode.errors import DropnodeError
from dropnode.files import explained

LONGEST = 2_000
"""Characters of an error message; what a user gives may be long, and is part of it."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Few-label node classification on graphs with GRAND, graph random neural networks.",
    epilog="Start with:  dropnode train    then:  dropnode datasets list",
)
app.command()(train)
app.command()(inspect)
app.command()(fit)
app.command()(predict)
app.command()(convert)
app.command()(explain)
app.command()(serve)
app.add_typer(datasets_app, name="datasets")
app.command()(methods)
app.command()(presets)
app.command()(experiments)
app.command()(reproduce)
app.command()(trials)
app.command()(report)
app.command()(tune)
app.command()(attack)
app.command()(bench)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of every error.")
    ] = False,
) -> None:
    context.obj["debug"] = debug
    if version:
        print(f"dropnode {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; the installed ``dropnode`` command calls this."""
    # Threads that spin while waiting keep a core from the thread that they wait for: on a machine
    # with other work, an epoch on a small graph takes several times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    """Run one command and return its exit code; exceptions that are bugs are not caught."""
    options = {"debug": False}
    command = typer.main.get_command(app)
    try:
        # Not app(...), which would exit with its own code and no message after an interruption.
        with command.make_context("dropnode", arguments, obj=options) as context:
            command.invoke(context)
        return 0
    except typer.Exit as ended:
        return ended.exit_code
    except BaseException as error:
        explained = _explain(error)
        if explained is None:
            raise
        message, code = explained
        if options["debug"]:
            traceback.print_exception(error)
        elif message:
            print(f"dropnode: {message}", file=sys.stderr)
        return code


def _explain(error: BaseException) -> tuple[str, int] | None:
    """Return the message and the exit code for an expected failure; None for a bug."""
    if isinstance(error, typer.TyperException):
        # The command line cannot be parsed, and the message names the option. Without any
        # arguments, typer has printed the help, and the message is empty.
        message, code = error.format_message(), USAGE_ERROR
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        message, code = "interrupted; there is no result yet", WORK_ERROR
    elif isinstance(error, DropnodeError):
        if error.several_lines:
            return str(error), error.exit_code
        message, code = str(error), error.exit_code
    elif _out_of_memory(error):
        message, code = f"out of memory: {error}; use a smaller graph or fewer jobs", WORK_ERROR
    elif isinstance(error, OSError):
        message, code = explained(error), WORK_ERROR
    else:
        return None
    message = " ".join(message.split())
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…", code


def _out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, which torch reports in its own ways."""
    torch = sys.modules.get("torch")
    return (
        isinstance(error, MemoryError)
        or (torch is not None and isinstance(error, torch.OutOfMemoryError))
        # On a CPU, torch raises a plain RuntimeError, which only its text identifies.
        or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))
    )
