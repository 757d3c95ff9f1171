"""The command line: parse, call, print.

Exit codes: 0 done; 1 the work failed; 2 the call or the input was wrong. Either failure is said in
one line on stderr, with what to do. With ``--json``, stdout holds one JSON object and nothing else.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dropnode import __version__
from dropnode.cli.bench import bench
from dropnode.cli.common import USAGE_ERROR, WORK_ERROR
from dropnode.cli.datasets import datasets_app
from dropnode.cli.report import report
from dropnode.cli.reproduce import reproduce
from dropnode.cli.search import search
from dropnode.cli.train import train
from dropnode.cli.trials import trials

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Few-label node classification on graphs with GRAND, graph random neural networks.",
    epilog="Start with:  dropnode train    then:  dropnode datasets list",
)
app.command()(train)
app.add_typer(datasets_app, name="datasets")
app.command()(search)
app.command()(reproduce)
app.command()(trials)
app.command()(report)
app.command()(bench)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"dropnode {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; the installed ``dropnode`` command calls this."""
    # Threads that wait by spinning take the core from whoever they wait for: on a machine that
    # does anything else, an epoch of a small graph gets several times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    """Run one command and turn every foreseeable failure into a line and an exit code."""
    try:
        return app(arguments, prog_name="dropnode", standalone_mode=False) or 0
    except typer.TyperException as error:
        # Words on the command line that make no sense; typer's own text names the option.
        # Called with no words at all, it has printed the help and has no text.
        message = error.format_message()
        return _fail(message, USAGE_ERROR) if message.strip() else USAGE_ERROR
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted before there was a result", WORK_ERROR)
    except ValueError as error:
        # GraphError, ConfigError and an unknown dataset are ValueErrors: the input was wrong.
        return _fail(str(error), USAGE_ERROR)
    except (RuntimeError, OSError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__, WORK_ERROR)


def _fail(message: str, code: int) -> int:
    print(f"dropnode: {' '.join(message.split())}", file=sys.stderr)
    return code
