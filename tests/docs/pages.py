"""Code blocks of the documentation's pages, to be run."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Block(NamedTuple):
    """A block of code on a page; its caption says which file it belongs to, if it has one."""

    language: str
    caption: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of code on a page, in order."""
    found = re.finditer(
        r"^( *)```(?:\{code-block\} )?(\w+)\n(?: *:caption: ([^\n]*)\n\n)?(.*?)^\1```$",
        page.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return [Block(one[2], one[3] or "", textwrap.dedent(one[4])) for one in found]


def command(line: str) -> str:
    """Return Python that runs a command line such as ``$ NAME=value dropnode train``."""
    words = shlex.split(line.removeprefix("$ "))
    at = words.index("dropnode")
    variables = dict(word.split("=", 1) for word in words[:at])
    return textwrap.dedent(
        f"""
        import os
        from dropnode.cli import _run
        os.environ |= {variables}
        assert _run({words[at + 1 :]}) == 0
        """
    )
