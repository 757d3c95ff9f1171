"""Tuning: validation alone decides, a killed search goes on, and its result can be used."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropnode.data import save_graph
from dropnode.engines.base import Failure
from dropnode.errors import ConfigError, GraphError, WorkError
from dropnode.experiments.experiment import reproduce
from dropnode.experiments.run import Job, run_trial
from dropnode.experiments.spec import Search
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.store import Store
from dropnode.experiments.trials import Finished, Trial, now
from dropnode.experiments.tuning import Tuning, stages_of, tune, validation_data
from dropnode.files import unseal
from dropnode.graph import Graph, Split
from dropnode.methods.table import GRAND_VARIANTS, METHODS, configuration
from dropnode.settings import read_changes

STAGES: Any = ({"hidden": (2, 8)}, {"order": (1, 3), "temperature": (0.2, 0.5)})
CHANGES = {"max_epochs": 4}


def here(trials: Sequence[Trial], job: Job) -> Generator[tuple[Trial, Finished], None, None]:
    """An engine that trains in this process."""
    for trial in trials:
        yield trial, run_trial(job, trial)


def scored(score: Callable[[Trial], float], ran: list[Trial]) -> Any:
    """An engine that trains nothing; a function tells the validation accuracy."""

    def engine(trials: Sequence[Trial], job: Job) -> Generator[Any, None, None]:
        for trial in trials:
            ran.append(trial)
            metrics = {"val_accuracy": score(trial), "val_loss": 1.0, "test_accuracy": None}
            yield trial, Finished(metrics, 0.1, now())

    return engine


@pytest.fixture
def dataset(community: Graph, tmp_path: Path) -> str:
    save_graph(community, tmp_path / "mine.npz")
    return str(tmp_path / "mine.npz")


def request_(dataset: str, sampler: str = "staged", seeds: int = 1, **changes: Any) -> Tuning:
    search = Search("grand", "default", CHANGES | changes, seeds, STAGES)
    return Tuning(dataset, search, sampler)


def wanted(trial: Trial) -> float:
    """Highest at hidden 8, order 3, temperature 0.2."""
    config = trial.config
    return (
        0.5
        + 0.2 * (config["hidden"] == 8)
        + 0.1 * (config["order"] == 3)
        - 0.2 * config["temperature"]
        + 0.001 * trial.seed
    )


def test_stages_climb_and_the_result_is_a_file_of_settings(dataset: str, tmp_path: Path) -> None:
    ran: list[Trial] = []
    found = tune(request_(dataset), tmp_path / "out", scored(wanted, ran))

    assert found.setting == {"hidden": 8, "order": 3, "temperature": 0.2}
    assert found.val_accuracy == pytest.approx(0.76)
    # Two, then four of which one is the best so far with the preset's values, or not.
    assert found.settings == found.trials == len(ran) == 6
    assert {trial.config["hidden"] for trial in ran[2:]} == {8}
    best = read_changes([f"@{tmp_path / 'out' / 'best.yaml'}", "order=1"])
    assert best == {"max_epochs": 4, "hidden": 8, "order": 1, "temperature": 0.2}
    kept = unseal(json.loads((tmp_path / "out" / "tuned.json").read_text()))
    assert (kept["settings"], kept["setting"]) == (6, found.setting)


def test_labels_of_test_nodes_are_removed_before_anything_is_trained(
    community: Graph, tmp_path: Path
) -> None:
    """With other labels of test nodes, or none, every stored number is the same."""
    split = community.split
    assert split is not None
    results = []
    for shift in (0, 1, None):
        labels = community.labels.copy()
        labels[split.test] = -1 if shift is None else (labels[split.test] + shift) % 3
        graph = community.with_labels(labels, community.class_names)
        path = tmp_path / f"{shift}.npz"
        save_graph(graph, path)
        data = validation_data(str(path))
        seen = data.graph(str(path), 0)
        assert len(seen.split.test) == 0
        assert (seen.labels[split.test] == -1).all()
        assert np.array_equal(seen.labels[split.train], community.labels[split.train])
        out = tmp_path / f"out {shift}"
        found = tune(request_(str(path)), out, here)
        with Store(out) as store:
            trials = {record.trial.id: record.metrics for record in store.records()}
        assert all(metrics["test_accuracy"] is None for metrics in trials.values())
        accuracies = {name: metrics["val_accuracy"] for name, metrics in trials.items()}
        results.append((found.setting, found.val_accuracy, sorted(accuracies.values())))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("sampler", ["staged", "optuna"])
def test_a_search_that_is_killed_goes_on_and_finds_the_same(
    sampler: str, dataset: str, tmp_path: Path
) -> None:
    asked = request_(dataset, sampler, seeds=2)
    ran: list[Trial] = []
    whole = tune(asked, tmp_path / "whole", scored(wanted, ran), trials=10)

    again: list[Trial] = []

    def dies(trials: Sequence[Trial], job: Job) -> Generator[Any, None, None]:
        for pair in scored(wanted, again)(trials, job):
            if len(again) % 3 == 0:
                raise OSError("killed")
            yield pair

    for _ in range(20):
        try:
            found = tune(asked, tmp_path / "out", dies, trials=10)
            break
        except OSError:
            continue
    assert found == whole
    # What was running when it was killed is trained again, and nothing else.
    assert len(again) <= 1.5 * len(ran)


def test_optuna_gives_up_what_falls_behind(dataset: str, tmp_path: Path) -> None:
    ran: list[Trial] = []
    found = tune(
        request_(dataset, "optuna", seeds=3), tmp_path / "out", scored(wanted, ran), trials=24
    )

    assert found.setting == {"hidden": 8, "order": 3, "temperature": 0.2}
    seeds: dict[str, int] = {}
    for trial in ran:
        name = json.dumps(dict(trial.config), sort_keys=True)
        seeds[name] = max(seeds.get(name, 0), trial.seed + 1)
    assert found.settings == len(seeds)
    assert found.trials == len(ran) == sum(seeds.values())
    assert min(seeds.values()) < 3, "no setting was given up"
    worst = min(ran, key=wanted)
    best = max(ran, key=wanted)
    assert seeds[json.dumps(dict(best.config), sort_keys=True)] == 3
    assert wanted(worst) < wanted(best)


def test_a_folder_has_one_search(dataset: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(request_(dataset), out, scored(wanted, []))
    with pytest.raises(ConfigError, match="another config"):
        tune(request_(dataset, max_epochs=5), out, scored(wanted, []))
    with pytest.raises(ConfigError, match="another sampler"):
        tune(request_(dataset, "optuna"), out, scored(wanted, []))


def test_the_folder_of_an_experiment_is_none_of_a_search_and_conversely(
    dataset: str, tmp_path: Path
) -> None:
    text = f"title: t\ndatasets: [{dataset}]\nseeds: 1\nset: {{max_epochs: 2}}\n"
    spec = parse_spec("mine", text + "rows: [{method: grand}]\n")
    tuned, reproduced, imported = (tmp_path / name for name in ("tuned", "reproduced", "imported"))
    tune(request_(dataset), tuned, scored(wanted, []))
    with pytest.raises(ConfigError, match="is the folder of a search for settings; choose another"):
        reproduce(spec, tuned, here)
    reproduce(spec, reproduced, here)
    with pytest.raises(ConfigError, match="is the folder of an experiment; choose another folder"):
        tune(request_(dataset), reproduced, scored(wanted, []))
    with Store(reproduced) as store, Store(imported) as copy:
        copy.add((record, None) for record in store.records())
    with pytest.raises(ConfigError, match="has trials that are not those of a search"):
        tune(request_(dataset), imported, scored(wanted, []))


@pytest.mark.parametrize("sampler", ["staged", "optuna"])
def test_failed_trials_of_an_earlier_call_are_run_again(
    sampler: str, dataset: str, tmp_path: Path
) -> None:
    """Once in every call: a training that fails always would fail in every stage."""
    ran: list[str] = []

    def fails(trials: Sequence[Trial], job: Job) -> Generator[Any, None, None]:
        for trial in trials:
            ran.append(trial.id)
            yield trial, Failure("no memory")

    asked = request_(dataset, sampler, seeds=2)
    out = tmp_path / "out"
    for _ in range(2):
        ran.clear()
        with pytest.raises(WorkError, match="or run the same command again"):
            tune(asked, out, fails, trials=4)
        assert len(ran) == len(set(ran)) > 0
    assert tune(asked, out, scored(wanted, []), trials=10) == tune(
        asked, tmp_path / "other", scored(wanted, []), trials=10
    )


def test_failed_seeds_do_not_count_for_a_setting(dataset: str, tmp_path: Path) -> None:
    """Of the best values, those that more seeds reached come first."""

    def one_fails(trials: Sequence[Trial], job: Job) -> Generator[Any, None, None]:
        for trial, finished in scored(wanted, [])(trials, job):
            lost = trial.seed == 0 and trial.config["hidden"] == 8
            yield trial, Failure("no memory") if lost else finished

    found = tune(request_(dataset, seeds=2), tmp_path / "out", one_fails)
    assert found.setting["hidden"] == 2


def test_ctrl_c_keeps_the_best_so_far(dataset: str, tmp_path: Path) -> None:
    ran: list[Trial] = []

    def interrupted(trials: Sequence[Trial], job: Job) -> Generator[Any, None, None]:
        if len(ran) == 2:
            raise KeyboardInterrupt
        yield from scored(wanted, ran)(trials, job)

    found = tune(request_(dataset), tmp_path / "out", interrupted)
    assert found.interrupted
    assert found.setting == {"hidden": 8}

    assert len(ran) == 2
    with pytest.raises(WorkError, match="no setting was trained"):
        tune(request_(dataset), tmp_path / "other", interrupted)


@pytest.mark.parametrize(
    ("sampler", "count"),
    # In the first stage, where a setting has one seed more than the other; in the second; and
    # among the first proposals.
    [("staged", 1), ("staged", 3), ("staged", 10), ("optuna", 2)],
)
def test_ctrl_c_keeps_the_best_of_what_has_ended(
    sampler: str, count: int, dataset: str, tmp_path: Path
) -> None:
    ran: list[Trial] = []

    def interrupted(trials: Sequence[Trial], job: Job) -> Generator[Any, None, None]:
        for pair in scored(wanted, ran)(trials, job):
            if len(ran) > count:
                raise KeyboardInterrupt
            yield pair

    found = tune(request_(dataset, sampler, seeds=2), tmp_path / "out", interrupted)

    assert found.interrupted
    assert found.trials == count
    seeds: dict[str, list[float]] = {}
    for trial in ran[:count]:
        tried = {key: trial.config[key] for stage in STAGES for key in stage}
        seeds.setdefault(json.dumps(tried), []).append(wanted(trial))
    most = max(map(len, seeds.values()))
    means = {name: np.mean(each) for name, each in seeds.items() if len(each) == most}
    best = max(means, key=means.__getitem__)
    assert found.val_accuracy == pytest.approx(means[best])
    assert found.setting.items() <= json.loads(best).items()


def test_a_graph_without_validation_nodes_is_refused(community: Graph, tmp_path: Path) -> None:
    save_graph(community.with_split(Split([0, 1, 2], [], [])), tmp_path / "bare.npz")
    with pytest.raises(GraphError, match="no validation nodes"):
        tune(request_(str(tmp_path / "bare.npz")), tmp_path / "out", here)


def test_every_method_has_values_to_try() -> None:
    """Each of which its configuration takes; what makes a variant stays."""
    for method in METHODS:
        stages = stages_of(method)
        assert stages
        _, config = configuration(method, None)
        for key, values in ((key, values) for stage in stages for key, values in stage.items()):
            assert key not in GRAND_VARIANTS.get(method, {})
            for value in values:
                assert getattr(config.replace(**{key: value}), key) == value
