"""The loop: when it stops, what it keeps, what it must not see, and how it ends when it must."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode.errors import TrainingError
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.model import Grand
from dropnode.ops.randomness import Stream
from dropnode.training import Method, Outcome, Phase, State, Stopping, train
from dropnode.training.optimiser import Adam
from dropnode.training.stopping import Progress

Configure = Callable[..., GrandConfig]
NONE = np.array([], dtype=np.int64)


def run(config: GrandConfig, graph: Graph, seed: int = 0, **options: Any) -> tuple[Grand, Outcome]:
    method = Grand(config)
    return method, train(method, graph, seed=seed, **options)


def fingerprint(method: Method, outcome: Outcome) -> tuple[Any, ...]:
    """Every bit a run produced."""
    weights = {name: value.numpy().tobytes() for name, value in method.state().items()}
    history = [[(key, value.hex()) for key, value in line.items()] for line in outcome.history]
    return weights, history, outcome.best_epoch, method.logits().numpy().tobytes()


def relabelled(graph: Graph, rows: np.ndarray, labels: np.ndarray) -> Graph:
    changed = graph.labels.copy()
    changed[rows] = labels
    return Graph.from_scipy(
        graph.adjacency,
        graph.features,
        changed,
        split=graph.split,
        class_names=graph.class_names,
    )


class At:
    """Do something when an epoch is over."""

    def __init__(self, epoch: int, action: Callable[[], None]) -> None:
        self.epoch, self.action = epoch, action

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        if outcome.epochs == self.epoch:
            self.action()


def draw() -> None:
    torch.rand(3)


def interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def no_interruption() -> Iterator[None]:
    """Turn an interruption that escapes into a failure of one test instead of all."""
    try:
        yield
    except KeyboardInterrupt:
        pytest.fail("the interruption was passed on")


# What may be seen


HEADS = ["mlp", "gcn", "gat"]


@pytest.mark.parametrize("head", HEADS)
def test_test_labels_change_no_bit(community: Graph, configure: Configure, head: str) -> None:
    assert community.split is not None
    config = configure(head=head, max_epochs=8)
    reference = fingerprint(*run(config, community))
    test = community.split.test
    for labels in (
        (community.labels[test] + 1) % 3,
        np.random.default_rng(0).permutation(community.labels[test]),
        np.full(len(test), -1),
    ):
        assert fingerprint(*run(config, relabelled(community, test, labels))) == reference
    for node in test[:3]:
        changed = relabelled(community, node, (community.labels[node] + 1) % 3)
        assert fingerprint(*run(config, changed)) == reference


def test_validation_labels_decide_only_when_to_stop(community: Graph, configure: Configure) -> None:
    assert community.split is not None
    val = community.split.val
    changed = relabelled(community, val, (community.labels[val] + 1) % 3)
    config = configure(max_epochs=12)
    _, honest = run(config, community)
    _, misled = run(config, changed)
    for one, other in zip(honest.history, misled.history, strict=True):
        for key in ("loss", "supervised", "consistency", "train_loss", "train_accuracy"):
            assert one[key] == other[key]
        assert one["val_loss"] != other["val_loss"]
    assert honest.best_epoch != misled.best_epoch


def test_training_labels_do_matter(community: Graph, configure: Configure) -> None:
    """The tests above would pass if labels were never read at all."""
    assert community.split is not None
    rows = community.split.train
    changed = relabelled(community, rows, (community.labels[rows] + 1) % 3)
    one, other = (run(configure(), graph)[1].history for graph in (community, changed))
    assert one[0]["supervised"] != other[0]["supervised"]


# Determinism


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
def test_a_seed_decides_every_bit(
    community: Graph, configure: Configure, head: str, perturbation: str
) -> None:
    """Whatever the global generators hold, whoever watches; and they are left as they were."""
    config = configure(head=head, perturbation=perturbation, input_dropout=0.2, max_epochs=3)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    reference = fingerprint(*run(config, community, seed=5))
    after = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]

    torch.manual_seed(2)
    watchers = [At(2, draw), At(1, draw)]
    assert fingerprint(*run(config, community, seed=5, callbacks=watchers)) == reference

    other = fingerprint(*run(config, community, seed=6))
    assert all(other[0][name] != bits for name, bits in reference[0].items() if "weight" in name)
    assert other[1][0] != reference[1][0]


def test_epochs_draw_different_masks(community: Graph, configure: Configure) -> None:
    """With a step too small to learn anything, only the masks can change the loss."""
    _, outcome = run(configure(learning_rate=1e-12, max_epochs=5), community)
    assert len({line["loss"] for line in outcome.history}) == 5


# Learning


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
@pytest.mark.parametrize("mask_scaling", ["training", "inference"])
def test_every_combination_learns(
    community: Graph, configure: Configure, head: str, perturbation: str, mask_scaling: str
) -> None:
    """On a graph with isolated nodes and rows of zeros, without a NaN anywhere."""
    config = configure(
        head=head,
        perturbation=perturbation,
        mask_scaling=mask_scaling,
        hidden=16,
        max_epochs=40,
        drop_rate=0.3,
    )
    method, outcome = run(config, community)
    values = [value for line in outcome.history for value in line.values()]
    assert np.isfinite(values).all()
    assert torch.isfinite(method.logits()).all()
    assert outcome.history[-1]["train_loss"] < 0.9 * outcome.history[0]["train_loss"]


@pytest.mark.parametrize("initialisation", ["glorot", "released"])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_batch_norm_and_initialisations_learn(
    community: Graph, configure: Configure, initialisation: str, batch_norm: bool
) -> None:
    config = configure(
        initialisation=initialisation, batch_norm=batch_norm, hidden=16, max_epochs=40
    )
    _, outcome = run(config, community)
    assert outcome.history[-1]["train_loss"] < 0.9 * outcome.history[0]["train_loss"]


@pytest.fixture(scope="module")
def separable() -> Graph:
    """Three groups of forty that features and edges tell apart; five labels each."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 40)
    nodes = len(labels)
    upper = np.triu(generator.random((nodes, nodes)), 1)
    chance = np.where(labels[:, None] == labels, 0.15, 0.01)
    edges = np.argwhere((upper > 0) & (upper < chance))
    features = np.eye(3)[labels] + 0.4 * generator.random((nodes, 3))
    within = np.arange(nodes) % 40
    split = Split(
        np.flatnonzero(within < 5),
        np.flatnonzero((within >= 5) & (within < 10)),
        np.flatnonzero(within >= 10),
    )
    return Graph.from_edges(edges, features, labels, split=split)


@pytest.mark.parametrize("head", HEADS)
def test_a_separable_graph_is_learnt(separable: Graph, configure: Configure, head: str) -> None:
    config = configure(
        head=head, hidden=16, max_epochs=100, learning_rate=0.05, feature_scaling="standard"
    )
    method, outcome = run(config, separable)
    assert separable.split is not None
    test = separable.split.test
    right = method.logits(rows=test).argmax(1).numpy() == separable.labels[test]
    assert right.mean() >= 0.95
    assert outcome.best["val_accuracy"] >= 0.95


def test_a_graph_without_edges_is_learnt_from_features(
    separable: Graph, configure: Configure
) -> None:
    graph = Graph.from_edges([], separable.features, separable.labels, split=separable.split)
    method, _ = run(configure(hidden=16, max_epochs=100, learning_rate=0.05), graph)
    assert (method.logits().argmax(1).numpy() == graph.labels).mean() >= 0.95


def test_training_says_nothing_unasked() -> None:
    """In a process of its own, as torch gives each of its warnings once."""
    program = """if True:
        import numpy, scipy.sparse
        from dropnode.methods.grand.config import preset
        from dropnode.graph import Graph, Split
        from dropnode.methods.grand.model import Grand
        from dropnode.training import train
        split = Split(numpy.array([0, 1]), numpy.array([2, 3]), numpy.array([4]))
        graph = Graph.from_edges([(0, 2), (1, 3)], scipy.sparse.eye_array(5), [0, 1, 0, 1, 0],
                                 split=split)
        for change in ({}, {"perturbation": "dropedge"}, {"head": "gat"}, {"input_dropout": 0.5}):
            config = preset(None, "none")[1].replace(max_epochs=2, feature_scaling="none")
            train(Grand(config.replace(**change)), graph)
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# Stopping


def follow(stopping: Stopping, losses: list[float], accuracies: list[float]) -> tuple[int, int]:
    """Epochs run and epoch kept, both counted from one."""
    progress = Progress(stopping)
    kept = 0
    for epoch, validation in enumerate(zip(losses, accuracies, strict=True), start=1):
        if progress.update(*validation):
            kept = epoch
        if progress.finished:
            return epoch, kept
    return len(losses), kept


@pytest.mark.parametrize(
    ("rule", "losses", "accuracies", "epochs", "kept"),
    [
        # An equal loss renews the patience and replaces what is kept.
        ("loss-or-accuracy", [1.0, 1.0, 2.0, 2.0, 0.0], [0.5, 0.4, 0.4, 0.4, 0.9], 4, 2),
        # An equal accuracy renews the patience and keeps nothing.
        ("loss-or-accuracy", [1.0, 2.0, 3.0, 4.0, 5.0], [0.5, 0.5, 0.4, 0.5, 0.4], 5, 1),
        # A higher accuracy at a higher loss is not kept.
        ("loss-or-accuracy", [1.0, 1.1, 1.2, 1.3, 1.4], [0.5, 0.9, 0.8, 0.8, 0.9], 4, 1),
        # A lower loss at a lower accuracy is.
        ("loss-or-accuracy", [1.0, 0.9, 1.0, 1.0, 0.1], [0.5, 0.1, 0.1, 0.1, 0.1], 4, 2),
        # An accuracy of zero equals the best there was.
        ("loss-or-accuracy", [1.0, 2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0], 5, 1),
        # By loss alone, accuracy renews nothing, and an equal loss neither.
        ("loss", [1.0, 1.0, 1.0, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4, 0.5], 3, 1),
        ("loss", [1.0, 1.1, 0.9, 1.0, 1.0], [0.5, 0.5, 0.5, 0.9, 0.9], 5, 3),
        ("loss", [1.0, 2.0, 0.5, 2.0, 0.4], [0.5, 0.5, 0.5, 0.5, 0.5], 5, 5),
        # By accuracy: the latest of the highest is kept, whatever its loss; loss renews too.
        ("accuracy", [1.0, 2.0, 3.0, 3.0, 3.0], [0.5, 0.9, 0.9, 0.8, 0.8], 5, 3),
        ("accuracy", [1.0, 0.9, 0.8, 0.9, 0.9], [0.5, 0.4, 0.4, 0.4, 0.9], 5, 5),
        ("accuracy", [1.0, 0.9, 0.9, 1.0, 1.0], [0.5, 0.4, 0.4, 0.4, 0.4], 5, 1),
        # By both: an equal accuracy renews, a lower loss does not, and both are needed to be kept.
        ("accuracy-and-loss", [1.0, 2.0, 0.5, 0.4, 0.1], [0.5, 0.5, 0.4, 0.4, 0.9], 4, 1),
        ("accuracy-and-loss", [1.0, 2.0, 0.9, 0.9, 0.8], [0.5, 0.9, 0.9, 0.9, 0.8], 5, 4),
        ("accuracy-and-loss", [1.0, 1.1, 1.2, 1.3, 1.4], [0.5, 0.6, 0.5, 0.6, 0.5], 5, 1),
        # Never stopping keeps the last.
        ("never", [1.0, 2.0, 3.0, 4.0, 5.0], [0.9, 0.1, 0.1, 0.1, 0.1], 5, 5),
    ],
)
def test_stopping_rules(
    rule: str, losses: list[float], accuracies: list[float], epochs: int, kept: int
) -> None:
    assert follow(Stopping(rule, 2), losses, accuracies) == (epochs, kept)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=40),
    st.integers(1, 5),
    st.sampled_from(["loss", "loss-or-accuracy", "accuracy"]),
)
def test_stopping_rules_on_any_sequence(
    validations: list[tuple[int, int]], patience: int, rule: str
) -> None:
    """What the rules promise, said about whole sequences instead of step by step."""
    losses = [float(loss) for loss, _ in validations]
    accuracies = [accuracy / 4 for _, accuracy in validations]

    def renews(at: int) -> bool:
        if rule == "loss":
            return losses[at] < min(losses[:at], default=math.inf)
        return losses[at] <= min(losses[:at], default=math.inf) or accuracies[at] >= max(
            accuracies[:at], default=0.0
        )

    renewed = [renews(at) for at in range(len(losses))]
    stops = [
        end for end in range(patience, len(losses) + 1) if not any(renewed[end - patience : end])
    ]
    epochs = min(stops, default=len(losses))
    scores = accuracies if rule == "accuracy" else [-loss for loss in losses]
    best = max(scores[:epochs])
    wanted = [at for at, score in enumerate(scores[:epochs], start=1) if score == best]
    kept = wanted[0] if rule == "loss" else wanted[-1]
    assert follow(Stopping(rule, patience), losses, accuracies) == (epochs, kept)


@pytest.mark.parametrize("stopping", ["loss", "loss-or-accuracy"])
@pytest.mark.parametrize("head", HEADS)
def test_the_best_weights_are_restored(
    community: Graph, configure: Configure, stopping: str, head: str
) -> None:
    config = configure(
        head=head,
        stopping=stopping,
        batch_norm=head == "mlp",
        learning_rate=0.3,
        max_epochs=40,
    )
    method, outcome = run(config, community)
    losses = [line["val_loss"] for line in outcome.history]
    assert losses[outcome.best_epoch - 1] == min(losses) != losses[-1]
    assert outcome.best == outcome.history[outcome.best_epoch - 1]
    assert community.split is not None
    val = community.split.val
    targets = torch.from_numpy(community.labels[val])
    logits = method.logits(rows=val)
    assert torch.nn.functional.cross_entropy(logits, targets).item() == pytest.approx(
        min(losses), rel=1e-5
    )
    right = (logits.argmax(1) == targets).double().mean().item()
    assert right == pytest.approx(outcome.best["val_accuracy"])


def test_patience_ends_a_run_that_does_not_improve(community: Graph, configure: Configure) -> None:
    config = configure(stopping="loss", patience=7, max_epochs=500, learning_rate=0.5)
    _, outcome = run(config, community)
    assert outcome.epochs == outcome.best_epoch + 7
    assert not outcome.interrupted


def test_without_validation_every_epoch_is_run_and_the_last_is_kept(
    community: Graph, configure: Configure
) -> None:
    assert community.split is not None
    graph = community.with_split(Split(community.split.train, NONE, NONE))
    _, outcome = run(configure(patience=1, max_epochs=23), graph)
    assert outcome.epochs == outcome.best_epoch == 23
    assert all(math.isnan(line["val_loss"]) for line in outcome.history)
    assert all(math.isfinite(line["train_loss"]) for line in outcome.history)


def test_a_split_given_to_train_comes_before_the_graphs_own(
    community: Graph, configure: Configure
) -> None:
    assert community.split is not None
    other = Split(community.split.val, community.split.train, community.split.test)
    method = Grand(configure())
    outcome = train(method, community, other)
    expected = run(configure(), community.with_split(other))
    assert fingerprint(method, outcome) == fingerprint(*expected)
    assert fingerprint(method, outcome) != fingerprint(*run(configure(), community))


# Interruption and divergence


@pytest.mark.parametrize("epoch", [1, 2, 9])
def test_an_interrupted_run_keeps_the_best_so_far(
    community: Graph, configure: Configure, epoch: int
) -> None:
    config = configure(max_epochs=30, learning_rate=0.3)
    with no_interruption():
        method, outcome = run(config, community, callbacks=[At(epoch, interrupt)])
    assert outcome.interrupted
    assert outcome.epochs == epoch
    short, whole = run(config.replace(max_epochs=epoch), community)
    assert not whole.interrupted
    assert fingerprint(method, outcome) == fingerprint(short, whole)


def test_an_interruption_in_the_middle_of_a_step_leaves_no_half_step(
    community: Graph, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(max_epochs=30, learning_rate=0.3)
    steps = 0
    step = Adam.step

    def stepping(self: Adam, *args: Any) -> Any:
        nonlocal steps
        result = step(self, *args)
        steps += 1
        if steps == 5:
            raise KeyboardInterrupt
        return result

    with no_interruption(), monkeypatch.context() as patch:
        patch.setattr(Adam, "step", stepping)
        method, outcome = run(config, community)
    assert outcome.interrupted
    assert fingerprint(method, outcome) == fingerprint(
        *run(config.replace(max_epochs=4), community)
    )


class Torn(dict[str, torch.Tensor]):
    """A state whose copying is interrupted half-way."""

    def items(self) -> Any:
        yield from list(super().items())[: len(self) // 2]
        raise KeyboardInterrupt


@pytest.mark.parametrize("copy", [2, 3, 4, 5])
def test_an_interruption_while_weights_are_copied_leaves_the_best_before(
    community: Graph, configure: Configure, copy: int
) -> None:
    """The half that was copied already must not be in memory that the best weights are in."""
    kept: list[State] = []

    class Interrupted(Grand):
        def state(self) -> State:
            state = super().state()
            kept.append({name: tensor.clone() for name, tensor in state.items()})
            return Torn(state) if len(kept) == copy else state

    method = Interrupted(configure(max_epochs=30, learning_rate=0.01))
    with no_interruption():
        outcome = train(method, community)
    assert outcome.interrupted
    assert len(kept) == copy
    before, torn = kept[-2:]
    for name, tensor in Grand.state(method).items():
        assert torch.equal(tensor, before[name]), name
        assert not torch.equal(tensor, torn[name]), "otherwise the interruption would not show"


def test_an_interruption_before_the_first_epoch_is_passed_on(
    community: Graph, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Grand, "loss", loss)
    with pytest.raises(KeyboardInterrupt):
        run(configure(), community)


def test_other_errors_of_a_callback_are_passed_on(community: Graph, configure: Configure) -> None:
    def fail() -> None:
        raise ZeroDivisionError("of the callback")

    with pytest.raises(ZeroDivisionError, match="of the callback"):
        run(configure(), community, callbacks=[At(2, fail)])


def test_features_that_overflow_end_in_an_error_that_names_epoch_and_cure(
    community: Graph, configure: Configure
) -> None:
    features = np.where(community.features > 0, 3e38, 0.0)
    graph = Graph.from_scipy(community.adjacency, features, community.labels, split=community.split)
    with pytest.raises(TrainingError) as caught:
        run(configure(feature_scaling="none"), graph)
    message = str(caught.value)
    assert message.startswith("training diverged in epoch 1: the loss is nan (supervised nan")
    assert "lower learning_rate (it is 0.02), or scale the features (feature_scaling)" in message


def test_a_learning_rate_that_explodes_ends_in_an_error(
    community: Graph, configure: Configure
) -> None:
    graph = Graph.from_scipy(
        community.adjacency, community.features * 1e21, community.labels, split=community.split
    )
    run(configure(feature_scaling="none"), graph)
    config = configure(feature_scaling="none", learning_rate=1e9)
    with pytest.raises(TrainingError, match=r"diverged in epoch [1-4]: .*\(it is 1e\+09\)"):
        run(config, graph)


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_last_step_that_leads_nowhere_is_an_error_too(
    community: Graph, configure: Configure, part: str
) -> None:
    """An isolated validation node overflows, and no loss comes after the last epoch's."""
    assert community.split is not None
    features = community.features.copy()
    features[24] = 3e38
    split = Split(community.split.train, np.append(community.split.val, 24), NONE)
    graph = Graph.from_scipy(community.adjacency, features, community.labels, split=split)
    # GRAND's gradient hears of the node and ruins the weights; a line's does not.
    config = configure(feature_scaling="none", consistency_weight=0.0, max_epochs=1)
    method = Grand(config) if part == "train" else Slope(epochs=1)
    message = f"diverged in epoch 1: the {part}_loss after it is nan; lower learning_rate"
    with pytest.raises(TrainingError, match=message):
        train(method, graph)


# The contract, by methods that are not GRAND


class Slope(Method):
    """A line through features and labels, in as many phases and batches as asked for."""

    def __init__(self, phases: int = 1, batches: int = 1, epochs: int = 4) -> None:
        self.number, self.parts, self.epochs = phases, batches, epochs
        self.began: list[str] = []
        self.seen: list[Any] = []

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        self.x = torch.tensor(graph.features)
        self.y = torch.from_numpy(graph.labels.copy())
        self.train_rows = torch.from_numpy(split.train.copy())
        generator = torch.Generator().manual_seed(stream.integer())
        shape = graph.num_features, graph.num_classes
        self.weight = torch.randn(shape, generator=generator).requires_grad_()
        # What a phase leaves behind for the next.
        self.anchor = torch.zeros(shape)

    def phases(self) -> list[Phase]:
        return [
            Phase(
                f"phase {number}",
                torch.optim.SGD([self.weight], lr=0.05, momentum=0.9),
                self.epochs + number,
                Stopping("loss", 100),
            )
            for number in range(self.number)
        ]

    def begin(self, phase: Phase, stream: Stream) -> None:
        self.began.append(phase.name)
        self.anchor = self.weight.detach().clone()

    def batches(self, phase: Phase, stream: Stream) -> Iterable[torch.Tensor]:
        order = stream.generator().permutation(len(self.train_rows))
        return torch.from_numpy(order).tensor_split(self.parts)

    def loss(self, batch: Any, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        self.seen.append(batch.tolist())
        rows = self.train_rows[batch]
        noise = torch.rand(1)  # From torch's own generator, as library layers draw.
        distance = (self.weight - self.anchor).square().sum()
        error = torch.nn.functional.cross_entropy(self.x[rows] @ self.weight, self.y[rows])
        return error + 0.01 * noise[0] * distance, {"error": error, "noise": noise[0]}

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        chosen = slice(None) if rows is None else torch.from_numpy(rows.copy())
        return (self.x[chosen] @ self.weight).detach()

    def state(self) -> State:
        return {"weight": self.weight.detach(), "anchor": self.anchor}

    def load_state(self, state: State) -> None:
        with torch.no_grad():
            self.weight.copy_(state["weight"])
        self.anchor = state["anchor"].clone()


class Majority(Method):
    """Closed form: everyone is of the commonest class."""

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        self.nodes = graph.num_nodes
        counts = np.bincount(graph.labels[split.train], minlength=graph.num_classes)
        self.counts = torch.from_numpy(counts).float()

    def phases(self) -> list[Phase]:
        return []

    def loss(self, batch: Any, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        raise NotImplementedError("there is nothing to step on")

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        return self.counts.log().expand(self.nodes if rows is None else len(rows), -1)

    def state(self) -> State:
        return {"counts": self.counts}

    def load_state(self, state: State) -> None:
        self.counts = state["counts"]


@pytest.mark.parametrize("head", ["mlp", "gcn", "gat"])
def test_the_global_generator_is_seeded_for_methods_that_draw_from_it(
    head: str, community: Graph, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others leave it alone, so that trainings in several threads do not wait for each other."""
    seeded: list[Stream] = []
    torch_global = Stream.torch_global

    def recorded(self: Stream) -> AbstractContextManager[None]:
        seeded.append(self)
        return torch_global(self)

    monkeypatch.setattr(Stream, "torch_global", recorded)
    state = torch.get_rng_state()
    run(configure(head=head, max_epochs=2), community)
    assert bool(seeded) == (head == "gat")
    assert torch.equal(torch.get_rng_state(), state)


def test_validation_watches_the_training_and_validation_nodes(community: Graph) -> None:
    """Asked for once, and called after every epoch."""
    asked: list[list[int]] = []
    called: list[int] = []

    class Watched(Slope):
        def watch(self, rows: np.ndarray) -> Callable[[], torch.Tensor]:
            asked.append(rows.tolist())
            logits = super().watch(rows)
            return lambda: (called.append(1), logits())[1]

    assert community.split is not None
    outcome = train(Watched(phases=2), community)
    assert asked == [[*community.split.train, *community.split.val]]
    assert len(called) == outcome.epochs


def test_a_method_in_two_phases(community: Graph) -> None:
    method = Slope(phases=2)
    ends: list[tuple[str, float]] = []

    class Watch:
        def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
            ends.append((phase.name, outcome.history[-1]["epoch"]))

    outcome = train(method, community, callbacks=[Watch()])
    assert method.began == ["phase 0", "phase 1"]
    first = [("phase 0", float(epoch)) for epoch in range(1, 5)]
    assert ends == first + [("phase 1", float(epoch)) for epoch in range(1, 6)]
    assert outcome.epochs == 9
    second = [line["val_loss"] for line in outcome.history[4:]]
    assert outcome.best_epoch == 5 + int(np.argmin(second))


def test_the_second_phase_starts_from_the_best_of_the_first(community: Graph) -> None:
    alone, both = Slope(phases=1, epochs=40), Slope(phases=2, epochs=40)
    outcome = train(alone, community, seed=1)
    assert outcome.best_epoch < outcome.epochs, "the best has to differ from the last"
    train(both, community, seed=1)
    assert torch.equal(both.anchor, alone.weight.detach())


@pytest.mark.parametrize("into", [1, 2])
def test_an_interrupted_second_phase_keeps_what_there_is(community: Graph, into: int) -> None:
    """Before its first epoch is over that is the first phase's best, afterwards its own."""
    method = Slope(phases=2)
    calls = 0
    loss = method.loss

    def interrupted(batch: Any, stream: Stream) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4 + into:
            raise KeyboardInterrupt
        return loss(batch, stream)

    method.loss = interrupted  # type: ignore[method-assign]
    with no_interruption():
        outcome = train(method, community)
    assert outcome.interrupted
    assert outcome.epochs == 3 + into
    val_loss = {True: outcome.history[:4], False: outcome.history[4:]}[into == 1]
    assert outcome.best["val_loss"] == min(line["val_loss"] for line in val_loss)
    assert community.split is not None
    targets = torch.from_numpy(community.labels[community.split.val])
    found = torch.nn.functional.cross_entropy(method.logits(rows=community.split.val), targets)
    assert found.item() == pytest.approx(outcome.best["val_loss"], rel=1e-6)


def test_several_batches_an_epoch(community: Graph) -> None:
    method = Slope(batches=3, epochs=2)
    outcome = train(method, community)
    assert len(method.seen) == 6
    for epoch in (method.seen[:3], method.seen[3:]):
        assert sorted(row for batch in epoch for row in batch) == list(range(6))
    assert method.seen[:3] != method.seen[3:]
    errors: list[float] = []
    again = Slope(batches=3, epochs=1)
    loss = again.loss

    def recorded(batch: Any, stream: Stream) -> Any:
        total, parts = loss(batch, stream)
        errors.append(parts["error"].item())
        return total, parts

    again.loss = recorded  # type: ignore[method-assign]
    train(again, community)
    assert outcome.history[0]["error"] == pytest.approx(np.mean(errors))


def test_a_method_that_draws_from_torch_is_seeded_by_the_run(community: Graph) -> None:
    runs = []
    for number, seed in enumerate((0, 0, 1)):
        torch.manual_seed(number)
        method = Slope(batches=2)
        runs.append(train(method, community, seed=seed).history)
    assert runs[0] == runs[1]
    assert runs[0][0]["noise"] != runs[2][0]["noise"]
    assert len({line["noise"] for line in runs[0]}) == 4, "every epoch draws anew"


def test_every_batch_draws_anew(community: Graph) -> None:
    """From its stream, and from torch's generator."""
    drawn: list[tuple[int, float]] = []

    class Noted(Slope):
        def loss(self, batch: Any, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            total, parts = super().loss(batch, stream)
            drawn.append((stream.integer(), parts["noise"].item()))
            return total, parts

    train(Noted(batches=3, epochs=2), community)
    for numbers in zip(*drawn, strict=True):
        assert len(set(numbers)) == 6


def test_a_closed_form_method_needs_no_epochs(community: Graph) -> None:
    method = Majority()
    outcome = train(method, community)
    assert (outcome.epochs, outcome.best_epoch) == (1, 1)
    assert community.split is not None
    for part in ("train", "val"):
        rows = getattr(community.split, part)
        right = method.logits().argmax(dim=1).numpy()[rows] == community.labels[rows]
        assert outcome.best[f"{part}_accuracy"] == pytest.approx(right.mean())
    assert not outcome.interrupted
    assert method.logits().shape == (26, 3)
