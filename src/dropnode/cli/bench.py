"""``dropnode bench``: time GRAND against other implementations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dropnode.bench.parts import PARTS
from dropnode.cli.common import AsJson


def bench(
    only: Annotated[
        str | None,
        typer.Option(
            metavar="PARTS",
            help=f"Some of {','.join(PARTS)}, separated by commas. Default: all but the last two.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also larger graphs, of up to ten million nodes in scale, and all parts."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for bench.json and bench.png.")] = Path("bench"),
    as_json: AsJson = False,
) -> None:
    """Time GRAND against a naive GRAND and PyTorch Geometric, side by side."""
    from dropnode.bench import picture, report, suite
    from dropnode.files import write_json

    parts = None if only is None else [part.strip() for part in only.split(",")]
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True, highlight=False)
    with console.status("preparing") as status:
        announce = status.update if console.is_terminal else console.print
        result = suite.run(parts, full=full, announce=announce)
    write_json(out / "bench.json", result)
    drawn = picture.save_picture(out / "bench.png", result)
    if as_json:
        print(json.dumps(result))
        return
    report.print_report(result, Console(highlight=False))
    print(f"saved in {out / 'bench.json'}" + (f" and {out / 'bench.png'}" if drawn else ""))
