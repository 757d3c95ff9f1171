"""The search of GraphNAS: it can be cut anywhere, sees no test label, and its controller learns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dropnode.data import load_dataset
from dropnode.errors import ConfigError, GraphError, TrainingError
from dropnode.experiments import architectures
from dropnode.experiments.architectures import (
    CHILDREN,
    Child,
    SearchResult,
    SearchSettings,
    controlled_search,
    random_search,
)
from dropnode.experiments.owners import TUNING, check_owner
from dropnode.files import seal, unseal
from dropnode.graph import Graph, Split
from dropnode.locks import FolderLock
from dropnode.methods.baselines.graphnas import GraphNAS, GraphNASConfig
from dropnode.methods.baselines.graphnas_controller import (
    Controller,
    ControllerConfig,
    RandomSampler,
    Sampler,
)
from dropnode.methods.baselines.graphnas_space import DECISIONS, SPACE, Action, parse
from dropnode.ops.randomness import Stream
from dropnode.training import train

Search = Callable[..., SearchResult]

both = pytest.mark.parametrize("strategy", [controlled_search, random_search])


def settings(**changes: Any) -> SearchSettings:
    child = GraphNASConfig(
        architecture="gcn,sum,relu,1,4,gcn,sum,linear,1,4",
        feature_scaling="none",
        dropout=0.3,
        residual=False,
        learning_rate=0.02,
        weight_decay=5e-4,
        stopping="accuracy",
        patience=5,
        max_epochs=changes.pop("max_epochs", 2),
    )
    return SearchSettings(child, **{"samples": 4, "max_width": 16, **changes})


@pytest.fixture(scope="module")
def small() -> Graph:
    return load_dataset("sbm", nodes=180, classes=3, features=8, average_degree=6.0)


def find(
    strategy: Search, graph: Graph, folder: Path, seed: int = 0, **changes: Any
) -> SearchResult:
    assert graph.split is not None
    return strategy(graph, graph.split, settings(**changes), seed, folder)


@both
def test_children_are_trained_once_and_kept(
    strategy: Search, small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def counting(method: GraphNAS, *args: Any, **options: Any) -> Any:
        counted.append(method.config.architecture)
        return train(method, *args, **options)

    monkeypatch.setattr(architectures, "train", counting)
    # So few architectures are left that samples repeat.
    monkeypatch.setattr(architectures, "spell", lambda decided, _: _narrow(decided))
    result = find(strategy, small, tmp_path, samples=12)
    assert len(result.samples) == 12
    assert len(counted) == len(set(counted)) == len(result.children) < 12
    lines = (tmp_path / CHILDREN).read_text().splitlines()
    assert [Child(**unseal(json.loads(line))) for line in lines] == list(result.children)
    assert result.best.val_accuracy == max(child.val_accuracy for child in result.children)


def _narrow(decided: tuple[Action, ...]) -> str:
    return f"{decided[0]},sum,relu,1,4,gcn,sum,linear,1,3"


@both
def test_a_reward_is_the_validation_accuracy_of_a_training(
    strategy: Search, small: Graph, tmp_path: Path
) -> None:
    child = find(strategy, small, tmp_path, seed=4, samples=1).best
    method = GraphNAS(settings().child.replace(architecture=child.architecture))
    outcome = train(method, small, seed=Stream(4).at("child", child.architecture).integer())
    assert child.val_accuracy == outcome.best["val_accuracy"]
    assert child.val_loss == outcome.best["val_loss"]
    assert parse(child.architecture)[-1].hidden == small.num_classes


@both
def test_it_resumes_from_every_byte_with_the_same_bits(
    strategy: Search, small: Graph, tmp_path: Path
) -> None:
    whole = find(strategy, small, tmp_path / "whole")
    text = (tmp_path / "whole" / CHILDREN).read_bytes()
    story = (tmp_path / "whole" / "search.json").read_bytes()
    ends = [place for place, byte in enumerate(text) if byte == ord("\n")]
    # Nothing yet, in the middle of a line, at its very end, after it, and all but the last byte.
    for number, cut in enumerate([0, ends[0] // 2, ends[1], ends[1] + 1, len(text) - 1]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / CHILDREN).write_bytes(text[:cut])
        (folder / "search.json").write_bytes(story)
        assert find(strategy, small, folder) == whole
        assert (folder / CHILDREN).read_bytes() == text


@both
def test_killed_in_a_child_it_goes_on_to_the_same_result(
    strategy: Search, small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = find(strategy, small, tmp_path / "whole")
    trainings = 0

    def fails(*args: Any, **options: Any) -> Any:
        nonlocal trainings
        trainings += 1
        if trainings == 3:
            raise MemoryError
        return train(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(architectures, "train", fails)
        with pytest.raises(MemoryError):
            find(strategy, small, tmp_path / "cut")
    assert len((tmp_path / "cut" / CHILDREN).read_text().splitlines()) == 2
    assert find(strategy, small, tmp_path / "cut") == whole


def test_an_interrupted_child_is_not_kept(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient:
        def on_epoch(self, *_: Any) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(
        architectures,
        "train",
        lambda *args, **options: train(*args, callbacks=[Impatient()], **options),
    )
    with pytest.raises(KeyboardInterrupt):
        find(controlled_search, small, tmp_path)
    assert not (tmp_path / CHILDREN).exists()


def test_a_finished_search_goes_on_with_more_samples(small: Graph, tmp_path: Path) -> None:
    short = find(controlled_search, small, tmp_path / "a", samples=2)
    longer = find(controlled_search, small, tmp_path / "a", samples=4)
    assert longer.samples[:2] == short.samples
    assert longer == find(controlled_search, small, tmp_path / "b", samples=4)


def test_every_sample_is_told_also_when_it_is_replayed(small: Graph, tmp_path: Path) -> None:
    assert small.split is not None
    told: list[tuple[int, Child]] = []

    def listen(number: int, child: Child) -> None:
        told.append((number, child))

    result = controlled_search(small, small.split, settings(), 0, tmp_path, on_sample=listen)
    controlled_search(small, small.split, settings(), 0, tmp_path, on_sample=listen)
    assert told == 2 * list(enumerate(result.samples, start=1))


@both
def test_no_test_label_is_looked_at(strategy: Search, small: Graph, tmp_path: Path) -> None:
    assert small.split is not None
    labels = small.labels.copy()
    labels[small.split.test] = (labels[small.split.test] + 1) % 3
    other = Graph.from_scipy(
        small.adjacency,
        small.features,
        labels,
        class_names=small.class_names,
        split=small.split,
    )
    here, there = (find(strategy, g, tmp_path / n) for g, n in ((small, "a"), (other, "b")))
    assert here == there


def test_an_architecture_that_diverges_earns_nothing(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*_: Any, **__: Any) -> Any:
        raise TrainingError("the loss is nan")

    monkeypatch.setattr(architectures, "train", diverges)
    result = find(controlled_search, small, tmp_path, samples=2)
    assert {(c.val_accuracy, c.val_loss, c.epochs) for c in result.samples} == {(0.0, None, 0)}
    assert find(controlled_search, small, tmp_path, samples=2) == result


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_epochs": 3}, "another config"),
        ({"max_width": 32}, "another max_width"),
        ({"seed": 1}, r"another seed \(0 there, 1 requested\)"),
        ({"controller": ControllerConfig(hidden=7)}, "another controller"),
        ({"strategy": random_search}, "another strategy"),
    ],
)
def test_a_folder_keeps_one_search(
    small: Graph, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    find(controlled_search, small, tmp_path, samples=1)
    with pytest.raises(ConfigError, match=message):
        find(
            changes.pop("strategy", controlled_search), small, tmp_path, **{"samples": 1, **changes}
        )


def test_a_folder_keeps_one_split(small: Graph, tmp_path: Path) -> None:
    assert small.split is not None
    find(controlled_search, small, tmp_path, samples=1)
    split = Split(small.split.train, small.split.val[:-1], small.split.test)
    with pytest.raises(ConfigError, match="another split"):
        find(controlled_search, small.with_split(split), tmp_path, samples=1)


def of_other_versions(text: str) -> str:
    """Return children that are sound, but not those that this search trains."""
    children = [unseal(json.loads(line)) for line in text.splitlines()]
    return "".join(
        json.dumps(seal(child | {"architecture": f"x{child['architecture']}"})) + "\n"
        for child in children
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "{" + text, "line 1 of .* is not a child"),
        (lambda text: "3\n" + text, "line 1 of .* is not a child"),
        (lambda text: text.replace('"epochs"', '"epoch"'), "line 1 of .* is not a child"),
        (lambda text: text.replace('"architecture": "', '"architecture": "x'), "checksum"),
        (lambda text: text.replace('"val_accuracy": 0.', '"val_accuracy": 0.9'), "checksum"),
        (lambda text: of_other_versions(text), "other versions"),
    ],
)
def test_a_damaged_folder_is_refused(
    small: Graph, tmp_path: Path, damage: Callable[[str], str], message: str
) -> None:
    find(controlled_search, small, tmp_path, samples=2)
    path = tmp_path / CHILDREN
    path.write_text(damage(path.read_text()))
    with pytest.raises(ConfigError, match=message):
        find(controlled_search, small, tmp_path, samples=2)


def test_children_without_their_story_are_refused(small: Graph, tmp_path: Path) -> None:
    (tmp_path / CHILDREN).write_text("")
    with pytest.raises(ConfigError, match="is not the folder of a search"):
        find(controlled_search, small, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [CHILDREN]


def test_a_search_needs_validation_nodes(small: Graph, tmp_path: Path) -> None:
    assert small.split is not None
    split = Split(small.split.train, [], small.split.test)
    with pytest.raises(GraphError, match="no validation nodes"):
        find(controlled_search, small.with_split(split), tmp_path)


@pytest.mark.parametrize("changes", [{"samples": 0}, {"max_width": 3}, {"max_width": 4097}])
def test_settings_out_of_range_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"{next(iter(changes))} = \d+; expected"):
        settings(**changes)


def samplers(max_width: int = 4096, **changes: Any) -> list[Sampler]:
    controller = Controller(ControllerConfig(**changes), max_width, Stream(0))
    return [controller, RandomSampler(max_width)]


def test_samplers_propose_what_is_allowed_and_nothing_else() -> None:
    for sampler in samplers(max_width=32):
        drawn = [sampler.propose(Stream(1).at(k)) for k in range(150)]
        for place, name in enumerate(DECISIONS):
            seen = {decided[place] for decided in drawn}
            if place == 3:
                assert seen == {1, 2, 4, 6, 8}
            elif place == 4:
                assert max(seen) == 32
            else:
                assert seen == set(SPACE[name])
        assert all(decided[3] * decided[4] <= 32 for decided in drawn)  # type: ignore[operator]


def test_a_fresh_controller_is_nearly_uniform_and_a_proposal_a_function_of_its_stream() -> None:
    controller = Controller(ControllerConfig(), 4096, Stream(0))
    decided = controller.propose(Stream(5))
    assert decided == controller.propose(Stream(5))
    chosen, entropies = controller.review(decided)
    uniform = torch.tensor([len(SPACE[name]) for name in DECISIONS]).log()
    torch.testing.assert_close(chosen, -uniform, rtol=0, atol=0.2)
    torch.testing.assert_close(entropies, uniform, rtol=0, atol=0.01)


def test_proposals_follow_the_probabilities_that_the_review_reports() -> None:
    controller = Controller(ControllerConfig(), 4096, Stream(0))
    with torch.no_grad():
        controller.decoders["attention"].bias.copy_(torch.linspace(-9, 9, 7))
    drawn = [controller.propose(Stream(2).at(k))[0] for k in range(300)]
    expected = controller.decide([], None)[0].exp().detach().numpy()
    found = np.array([drawn.count(action) for action in SPACE["attention"]]) / len(drawn)
    np.testing.assert_allclose(found, expected, atol=0.06)
    assert expected.max() / expected.min() == pytest.approx(np.exp(5 * np.tanh(1.8)), rel=0.15)


def test_a_step_of_learning_is_reinforce() -> None:
    """The gradient of -Σ log p (reward + entropy bonus - baseline), by autograd on its own."""
    config = ControllerConfig(learning_rate=1.0, baseline_decay=0.75, entropy_weight=0.5)
    controller = Controller(config, 4096, Stream(0))
    controller.optimiser = torch.optim.SGD(controller.parameters(), lr=1.0)
    first, second = (controller.propose(Stream(k)) for k in range(2))
    before = {name: p.clone() for name, p in controller.named_parameters()}
    # The first reward is its own baseline, and teaches nothing.
    controller.learn(first, 0.3)
    assert all(torch.equal(p, before[name]) for name, p in controller.named_parameters())
    earned = 0.3 + 0.5 * controller.review(first)[1].detach()
    chosen, entropies = controller.review(second)
    rewards = 0.9 + 0.5 * entropies.detach()
    advantage = rewards - (0.75 * earned + 0.25 * rewards)
    names = list(before)
    gradients = torch.autograd.grad(
        -(chosen * advantage).sum(), [controller.get_parameter(n) for n in names], allow_unused=True
    )
    controller.learn(second, 0.9)
    for name, gradient in zip(names, gradients, strict=True):
        step = 0 if gradient is None else gradient
        torch.testing.assert_close(controller.get_parameter(name), before[name] - step)


@pytest.mark.parametrize(("place", "rewarded"), [(0, "gat"), (6, "mean")])
def test_the_controller_comes_to_prefer_what_is_rewarded(place: int, rewarded: str) -> None:
    controller = Controller(ControllerConfig(learning_rate=0.02), 4096, Stream(0))
    for step in range(80):
        decided = controller.propose(Stream(0).at("sample", step))
        controller.learn(decided, float(decided[place] == rewarded))
    likely = np.mean([controller.propose(Stream(k))[place] == rewarded for k in range(50)])
    # Logits within 2.5 of zero: of seven actions, none can be surer than 0.96.
    assert likely > 0.9


@pytest.mark.slow
def test_the_controller_proposes_better_children_than_chance(tmp_path: Path) -> None:
    graph = load_dataset(
        "sbm", nodes=300, classes=4, features=16, average_degree=6.0, homophily=0.7
    )
    assert graph.split is not None
    changes = {"samples": 100, "max_width": 64, "max_epochs": 15}
    asked = settings(**changes, controller=ControllerConfig(learning_rate=0.01))
    for seed in range(3):
        later = [
            np.mean(
                [
                    child.val_accuracy
                    for child in strategy(
                        graph, graph.split, asked, seed, tmp_path / f"{strategy.__name__} {seed}"
                    ).samples[50:]
                ]
            )
            for strategy in (controlled_search, random_search)
        ]
        # As many children, and the later half of them learnt from the first.
        assert later[0] > later[1] + 0.1


@both
def test_one_process_at_a_time_searches_in_a_folder(
    strategy: Search, small: Graph, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with FolderLock(out), pytest.raises(ConfigError, match="another process is writing to"):
        find(strategy, small, out)
    find(strategy, small, out, samples=1)
    refused = pytest.raises(ConfigError, match="is the folder of a search for an architecture")
    with refused, FolderLock(out):
        check_owner(out, TUNING)
