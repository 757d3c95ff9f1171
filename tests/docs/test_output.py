"""The page about output has every command whose result can be read by a program."""

from __future__ import annotations

from typing import Any

import typer.main
from pages import ROOT

from dropnode.cli import app


def with_json(command: Any, name: str) -> list[str]:
    """Return the names of a command, and of those below it, that have ``--json``."""
    found = [name] if any("--json" in one.opts for one in command.params) else []
    below = getattr(command, "commands", {})
    return found + [one for key in below for one in with_json(below[key], f"{name} {key}".strip())]


def test_every_object_in_json_is_described() -> None:
    text = (ROOT / "docs" / "reference" / "output.md").read_text(encoding="utf-8")
    names = with_json(typer.main.get_command(app), "")
    assert {"train", "tune", "datasets list"} <= set(names)
    for name in names:
        headed = f"### dropnode {name}\n" in text
        # In the table, some have arguments.
        listed = f"`{name}`" in text or f"`{name} DIR" in text
        assert headed or listed, f"{name} --json is missing from docs/reference/output.md"
