"""The trials in the repository keep their ids: what was once measured is found again."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from dropnode.errors import DataError
from dropnode.experiments.experiment import read_story
from dropnode.experiments.runner import row_cells
from dropnode.experiments.spec import Spec
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.trials import Data, Trial

RESULTS = Path(__file__).parents[2] / "results"

FIXED = {
    "dropnode-vs-dropout": (320, "63d23c4c464ec746"),
    "efficiency": (140, "43dfdd5cd599151e"),
    "generalization": (90, "931a9dadabcf2890"),
    "hyperparameters": (360, "e30ea44027e8c5b4"),
    "initialisation": (80, "0b15707149f6185e"),
    "label-rates": (1020, "61339ab825a6ab91"),
    "label-rates-splits": (240, "e7b338bc20aaf589"),
    "large": (824, "c621d40633705373"),
    "oversmoothing": (300, "d221dad873440d03"),
    "presets": (526, "9db0fd636c0eff5d"),
    "pubmed-settings": (40, "32011ffc87524ff1"),
    "robustness-metattack": (1405, "37c7995c82156c2e"),
    "robustness-prbcd": (160, "9a26b8371cf0db31"),
    "robustness-random": (440, "e885dfaa2c6a3836"),
    "sensitivity": (300, "013c47c199c24354"),
    "table1": (1251, "70d280a50f04f019"),
    "table1-grand": (735, "4775e303a415a25d"),
    "theory": (11, "71f9a9256edc95c0"),
    "tune-fast": (160, "7b6f981c983b5aba"),
    "tune-large": (312, "0ae4ee2b2fa9ab86"),
    "tune-large-baselines": (216, "6fa691b516d84744"),
    "tune-pubmed": (40, "c4f5673b9dff4e1f"),
}
"""The number of trials of each experiment, and a hash of their ids."""

RAISED = {"gat": 2, "grand-gat": 2}
"""The methods whose revision has been raised since the first trials, and the revision now. A new
run of an experiment runs their older trials again."""


@cache
def stored(name: str) -> dict[str, dict[str, str]]:
    """Return the trials of a folder by their id."""
    csv.field_size_limit(sys.maxsize)
    content = gzip.decompress((RESULTS / name / "trials.csv.gz").read_bytes()).decode()
    return {row["id"]: row for row in csv.DictReader(io.StringIO(content, newline=""))}


def test_every_folder_with_trials_is_held() -> None:
    assert set(FIXED) == {path.parent.name for path in RESULTS.glob("*/trials.csv.gz")}


@pytest.mark.parametrize("name", FIXED)
def test_the_ids_are_those_that_were_published(name: str) -> None:
    ids = sorted(stored(name))
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
    assert (len(ids), digest) == FIXED[name]


@pytest.mark.parametrize("name", FIXED)
def test_every_row_still_has_the_identity_that_its_id_says(name: str) -> None:
    for identifier, row in stored(name).items():
        trial = Trial(
            dataset=row["dataset"],
            dataset_sha256=row["dataset_sha256"],
            split=row["split"],
            split_seed=int(row["split_seed"]),
            method=row["method"],
            revision=int(row["revision"]),
            preset=row["preset"],
            config=json.loads(row["config"]),
            seed=int(row["seed"]),
            split_sha256=row.get("split_sha256", ""),
            recipe=row.get("recipe", ""),
        )
        assert trial.id == identifier


@cache
def planned(name: str) -> Spec:
    """Return the part of a spec that a folder was made from, as this version reads it."""
    story = read_story(RESULTS / name)
    return story.part.of(parse_spec(story.name, story.spec))


def data_of(name: str) -> Data:
    try:
        return Data.load(planned(name).datasets, planned(name).split_seeds)
    except DataError as error:
        pytest.skip(f"the published graphs cannot be had here: {error}")


@pytest.mark.parametrize("name", [name for name in FIXED if not planned(name).search])
def test_planning_the_experiment_anew_comes_to_trials_that_are_stored(name: str) -> None:
    """The same words in a spec, today's presets, methods, splits and data: the same ids."""
    trials = [trial for cell in row_cells(planned(name), data_of(name)) for trial in cell.trials]
    assert trials
    revisions = {row["method"]: int(row["revision"]) for row in stored(name).values()}
    then = [replace(trial, revision=revisions[trial.method]) for trial in trials]
    assert {trial.id for trial in then} <= stored(name).keys()
    raised = {now.method for now, was in zip(trials, then, strict=True) if now.id != was.id}
    assert raised == {
        method for method, revision in RAISED.items() if revisions.get(method, revision) < revision
    }
