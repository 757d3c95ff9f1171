"""Broken specs: text that is no YAML, keys and values that are not meant, more trials than time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import junk
import yaml

from dropnode.experiments.runner import row_cells, stage_cells
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.trials import Data

ROWS: dict[str, Any] = {
    "title": "rows",
    "datasets": ["digits", "sbm@random-edges:rate=0.1"],
    "seeds": {"digits": 2, "sbm@random-edges:rate=0.1": 1},
    "splits": 2,
    "set": {"max_epochs": 3},
    "measures": ["seconds_per_epoch"],
    "rows": [
        {"method": "grand", "vary": {"order": [1, 2]}, "choose": {"hidden": [4, 8]}},
        {"method": "gcn", "name": "other", "paper": {"digits": [80.0, 1.0]}},
    ],
    "reference": "other",
    "claims": [{"claim": "it helps", "better": "grand order=1", "than": "other"}],
    "plots": [{"title": "order", "x": "K"}],
}

SEARCH: dict[str, Any] = {
    "title": "search",
    "datasets": ["digits"],
    "seeds": 1,
    "search": {"method": "grand", "stages": [{"order": [1, 2]}, {"hidden": [4, 8]}]},
}

TEXTS = [
    lambda r: "\n".join(f"k{i}: 1" for i in range(40_000)),
    lambda r: r.choice("[{-?") * r.choice([10, 60, 20_000]),
    lambda r: "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(9_000)),
    lambda r: "a: &a [*a]",
    lambda r: "".join(f"a{i + 1}: &a{i + 1} [{f'*a{i},' * 9}]\n" for i in range(9)),
    lambda r: "x" * 2_000_000,
    lambda r: r.choice(["!!timestamp x", "!!bool x", "!!python/object:os.system x", "!!int x"]),
    lambda r: "a: " + "9" * 5000,
    lambda r: "<<: " + junk.text(r),
    junk.text,
]
"""Texts that are no spec."""


def warm_up() -> None:
    """Plan the sound specs that others are made of, and import what takes seconds."""
    for sound in (ROWS, SEARCH):
        _planned(yaml.safe_dump(sound))


def case(random: Random, folder: Path) -> Callable[[], object]:
    """Return a call that reads a spec, and plans what it asks for."""
    text = random.choice(TEXTS)(random) if random.random() < 0.2 else _spoilt(random)
    return lambda: _planned(text)


def _spoilt(random: Random) -> str:
    values = copy.deepcopy(random.choice([ROWS, ROWS, SEARCH]))
    for _ in range(random.choice([1, 1, 2])):
        _change(values, random)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    if random.random() < 0.3:
        at = random.randrange(len(text))
        text = (
            text[:at] + random.choice(["", "x", ":", "- ", "\n", "{", "\t", text]) + text[at + 1 :]
        )
    return text


def _change(values: Any, random: Random) -> None:
    """Change one place of nested values, however deep."""
    keys = list(values) if isinstance(values, dict) else list(range(len(values)))
    if not keys:
        return
    key = random.choice(keys)
    if isinstance(values[key], dict | list) and random.random() < 0.7:
        _change(values[key], random)
    elif isinstance(values, dict) and random.random() < 0.3:
        values[f"{key}{random.choice(['x', '', ' '])}"] = values.pop(key)
    else:
        values[key] = _leaf(random)


def _leaf(random: Random) -> Any:
    given = random.choice(
        [
            10**10,
            10**30,
            -1,
            0,
            1e18,
            float("nan"),
            None,
            True,
            [],
            {},
            list(range(50)),
            {key: list(range(1, 51)) for key in ("order", "hidden", "patience", "augmentations")},
            {"order": [10**18]},
            [{}],
            [[1]],
            "9" * 400,
            junk.text(random),
        ]
    )
    # YAML has no characters that are half of one.
    return given.encode(errors="replace").decode() if isinstance(given, str) else given


def _planned(text: str) -> None:
    spec = parse_spec("fuzz", text)
    data = Data.load(spec.datasets, spec.split_seeds)
    row_cells(spec, data)
    if spec.search is not None:
        stage_cells(spec.search, data, 0, {name: {} for name in spec.datasets})
