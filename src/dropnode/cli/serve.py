"""``dropnode serve``: look at a model in a browser, or ask it over HTTP."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from dropnode.cli.common import AsJson
from dropnode.cli.fit import notices

PORT = 8321


def serve(
    model: Annotated[Path, typer.Argument(help="Folder of a model, made by dropnode fit.")],
    nodes: Annotated[
        Path | None,
        typer.Option(help="Table of nodes that the model was fitted to, whose texts are shown."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")
    ] = PORT,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a token that every request must show.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explore a model of dropnode fit in a browser, and serve it over HTTP."""
    from dropnode.errors import ConfigError

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "serve needs FastAPI and uvicorn; install them with: pip install 'dropnode[serve]'"
        ) from error
    from dropnode.serve.explorer import Explorer
    from dropnode.serve.server import listen, read_token
    from dropnode.serve.server import serve as answer

    console = Console(stderr=True)
    token = read_token(token_file)
    listener = listen(host, port, token)
    with listener, notices(console):
        with console.status(Text(f"loading {model}")):
            explorer = Explorer(model, nodes)
        number = listener.getsockname()[1]
        address = f"http://{f'[{host}]' if ':' in host else host}:{number}/"

        def tell() -> None:
            if as_json:
                print(json.dumps({"address": address, "model": str(model)}), flush=True)
            else:
                print(f"open {address}  (Ctrl-C ends)", flush=True)
                if token is not None:
                    print(f"with its token: {address}#token=TOKEN", flush=True)
                if explorer.workplace is None:
                    print("nothing can be written beside the model: labels are not taken")
            if open_:
                webbrowser.open(address)

        answer(explorer, listener, host, token, tell)
