"""Parts of error messages: a value as it is shown, the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the nearest known name, or all of them."""
    known, name = list(known), name[:100]
    near = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(
        name.lower(), known, n=1
    )
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(known)}"


def continued(message: str, more: str) -> str:
    """Return a message with another part; after a question, the part is a sentence of its own.

    Examples
    --------
    >>> continued("expected one of a, b", "or give a path")
    'expected one of a, b; or give a path'
    >>> continued("did you mean 'a'?", "or give a path")
    "did you mean 'a'? Or give a path"
    """
    if message.endswith("?"):
        return f"{message} {more[:1].upper()}{more[1:]}"
    return f"{message}; {more}"


def shown(value: Any) -> str:
    """Return a value as errors show it, cut if it is long.

    Examples
    --------
    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Whole numbers of thousands of digits have no text, nor has what is broken.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:59]}…"
