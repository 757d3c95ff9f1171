"""Broken references: names, paths, transforms and their options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import junk

from dropnode.experiments.references import TRANSFORMS, Reference
from dropnode.experiments.trials import Data

OPTIONS = ["rate", "seed", "definition", "code", "mode", "block", "hidden", "steps", "rat"]


def case(random: Random, folder: Path) -> Callable[[], object]:
    """Return a call that reads a reference, checks it, and makes the graph if that is quick."""
    source = random.choice([*["sbm", "digits"] * 4, junk.text(random), "a/b.npz", "x" * 5000])
    steps = [_step(random) for _ in range(random.choice([1, 1, 1, 2, 30]))]
    text = "@".join([source, *steps])
    if random.random() < 0.1:
        at = random.randrange(len(text))
        text = text[:at] + random.choice("@:=,\0 \ud800") + text[at:]
    return lambda: _loaded(text, random.choice([0, 0, -1, 10**30]))


def _step(random: Random) -> str:
    name = random.choice([*[*TRANSFORMS] * 4, junk.text(random)])
    pairs = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        number = random.choice(["0.1", "0.1", "1", "0", "-1", "1e9", "1e300", junk.text(random)])
        option = random.choice([*["rate", "code"] * 4, *OPTIONS])
        pairs.append(f"{option}{random.choice([*['='] * 8, '', '=='])}{number}")
    return f"{name}:{','.join(pairs)}" if pairs else name


def _loaded(text: str, split_seed: int) -> None:
    reference = Reference.parse(text)
    # The canonical form means the same.
    assert Reference.parse(str(reference)) == reference
    Data.load([text], [max(split_seed, 0)])
    if not {"metattack", "prbcd"} & {step.name for step in reference.steps}:
        reference.load(split_seed)
