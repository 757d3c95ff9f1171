"""Broken arguments of every command."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import driver
import junk

from dropnode import cli

QUICK = ["--set", "max_epochs=1", "--set", "order=1", "--set", "hidden=4"]

SPEC = """
title: small
datasets: [digits]
seeds: 1
set: {max_epochs: 1}
rows: [{method: logistic}]
"""

COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "train": (
        ["digits"],
        "--method --preset --seed --seeds --jobs --split-seed --set --device --out "
        "--checkpoint-every --resume --json".split(),
    ),
    "reproduce": (
        ["spec.yaml"],
        "--out --datasets --methods --seeds --engine --address --jobs --timeout --retry".split(),
    ),
    "tune": (
        ["digits"],
        "--out --method --preset --set --try --search --trials --seeds --seed --split-seed "
        "--engine --address --jobs --timeout".split(),
    ),
    "attack": (["digits"], "--kind --rate --out --seed --split-seed --set".split()),
    "trials": (["store", "list"], "--dataset --method --status --json".split()),
    "report": (["store"], ["--json"]),
    "bench": ([], ["--only", "--out"]),
    "datasets": (["info", "digits"], ["--json"]),
    "methods": ([], ["--json"]),
    "presets": ([], ["--json"]),
    "experiments": ([], ["--json"]),
}
"""The arguments and options of every command."""

FLAGS = {"--resume", "--json", "--retry"}

ALWAYS = {"bench": ["--only", "nothing"], "tune": ["--trials", "-1"]}
"""What keeps a command from hours of work."""


def warm_up() -> None:
    """Compile the kernels, and import what takes seconds."""
    run(["train", "digits", *QUICK])
    # Some methods import it. The time limit of a case must not end an import half-way.
    importlib.import_module("torch_geometric.nn")


def case(random: Random, folder: Path) -> Callable[[], object]:
    """Return a call of the command line with something wrong in it."""
    command = random.choice([*COMMANDS, "train", "train", "attack", "reproduce"])
    given, options = COMMANDS[command]
    arguments = list(given)
    if arguments and random.random() < 0.3:
        arguments[random.randrange(len(arguments))] = junk.text(random)
    for option in random.sample(options, min(len(options), random.choice([1, 2, 3]))):
        arguments += [option] if option in FLAGS else [option, _value(option, random)]
    if random.random() < 0.1:
        arguments.insert(random.randrange(len(arguments) + 1), junk.text(random))
    if command == "train" and "--method" not in arguments:
        arguments += QUICK
    if command == "attack":
        arguments += ["--kind", "random", "--rate", "0.01", "--out", "a.npz"]
    if command == "reproduce":
        (folder / "spec.yaml").write_text(SPEC)
        # Workers take seconds to start; a case is about what comes before.
        arguments += ["--out", random.choice(["store", "spec.yaml"]), "--datasets", "nothing"]
    arguments += ALWAYS.get(command, [])
    return lambda: run([command, *arguments])


def _value(option: str, random: Random) -> str:
    if option == "--set":
        keys = ["order", "hidden", "augmentations", "learning_rate", "head", "batch_norm", "seed"]
        return f"{random.choice(keys)}={junk.text(random)}"
    if option == "--seeds":
        # A number that can be meant starts processes.
        return random.choice(["0", "-3", "10000000000", "9" * 30, "nan", ""])
    if option == "--out":
        return random.choice(["new", "not ours.txt", "", "/dev/full", "a" * 300, "\udcff", "x.npz"])
    return junk.text(random)


def run(arguments: list[str]) -> None:
    """Run a command as a shell would, and look at how it failed."""
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            code = cli._run(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    if code:
        # Progress may be shown before; what went wrong is the last line.
        told = [line for line in errors.getvalue().splitlines() if "dropnode: " in line]
        help_shown = "Usage:" in printed.getvalue() + errors.getvalue()
        assert len(told) == 1 or help_shown, (arguments, code, errors.getvalue())
        assert code in (1, 2), code
        assert not re.search("Traceback", errors.getvalue())
        raise driver.Told(f"{arguments}: {errors.getvalue()[-500:]}")
