"""Parts of error messages: a value as it is shown, the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the nearest known name, or all of them.

    Examples
    --------
    >>> suggestion("gnc", ["gcn", "sgc", "mlp"]), suggestion("x", ["gcn", "mlp"])
    ("; did you mean 'gcn'?", '; expected one of gcn, mlp')
    """
    known, name = list(known), name[:100]
    near = difflib.get_close_matches(name, known) or difflib.get_close_matches(name.lower(), known)
    if not near:
        return f"; expected one of {', '.join(known)}"
    # Swapped letters are a frequent slip, which difflib takes for two different ones.
    swapped = (one for one in near if sorted(one) == sorted(name.lower()))
    return f"; did you mean {next(swapped, near[0])!r}?"


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
