"""Losses and gradients of everything after the first linear map, against formulas in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dropnode.methods.grand.fused.kernels.batch_norm import activation_statistics, through_norm
from dropnode.methods.grand.fused.kernels.rows import (
    Layer,
    Learnt,
    Task,
    learn,
    pad_bias2,
)
from dropnode.ops.kernels.memory import padded
from oracles import sharpened
from packing import no_words, packed
from rounding import UNIT, Rounded, lost

SEEDS = st.integers(0, 2**32)


@dataclass
class Case:
    """One call of ``learn``, densely: sizes as they are, nothing padded yet."""

    seed: int
    nodes: int = 20
    views: int = 2
    hidden: int = 32
    classes: int = 7
    temperature: float = 0.5
    consistency_weight: float = 0.8
    labelled: float = 0.3
    drop_rate: float = 0.4
    normed: bool = False
    size: float = 1.0
    """Of the second layer's weights."""

    first: np.ndarray = field(init=False)
    kept: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        generator = np.random.default_rng(self.seed)

        def normal(*shape: int) -> np.ndarray:
            return generator.standard_normal(shape).astype(np.float32)

        self.first = normal(self.nodes, self.views, self.hidden)
        self.bias1 = normal(self.views, self.hidden)
        self.weight2 = self.size * normal(self.hidden, self.classes) / self.hidden**0.5
        self.bias2 = self.size * normal(self.classes)
        self.scale = normal(self.views, self.hidden) if self.normed else None
        self.shift = normal(self.views, self.hidden) if self.normed else None
        self.labels = generator.integers(0, self.classes, self.nodes)
        self.label_weights = generator.uniform(0.1, 2.0, self.nodes).astype(np.float32)
        self.label_weights[generator.random(self.nodes) >= self.labelled] = 0.0
        shape = self.views, self.nodes, self.hidden
        self.kept = generator.random(shape) >= self.drop_rate

    @property
    def wide(self) -> int:
        return padded(self.hidden)

    def widened(self, x: np.ndarray) -> np.ndarray:
        """Views side by side, each with zeros behind it: (rows, views · hidden padded)."""
        rows = x if x.ndim == 3 else x[None]
        missing = self.wide - self.hidden
        return np.pad(rows, ((0, 0), (0, 0), (0, missing))).reshape(len(rows), -1)

    def narrowed(self, x: np.ndarray) -> np.ndarray:
        """The opposite; what stands behind must have stayed zero."""
        rows = x.reshape(-1, self.views, self.wide)
        assert not rows[:, :, self.hidden :].any(), "something was found where nothing is"
        return rows[:, :, : self.hidden]

    @property
    def task(self) -> Task:
        return Task(self.labels, self.label_weights, self.consistency_weight, self.temperature)

    @property
    def layer(self) -> Layer:
        weight2 = np.zeros((self.wide, padded(self.classes)), dtype=np.float32)
        weight2[: self.hidden, : self.classes] = self.weight2
        norm = [self.widened(part) for part in (self.scale, self.shift) if part is not None]
        bias2 = pad_bias2(self.bias2)
        return Layer(self.widened(self.bias1), weight2, bias2, self.classes, *norm)

    def learnt(self, in_place: bool = False) -> tuple[Learnt, np.ndarray]:
        """Run the kernel."""
        first = self.widened(self.first)
        words = packed(self.kept.reshape(-1, self.hidden)) if self.drop_rate else no_words(0)
        out = first if in_place else np.full_like(first, np.nan)
        return learn(first, self.layer, words, 1.0 - self.drop_rate, self.task, out), out

    def by_autograd(self) -> dict[str, Any]:
        """Both losses, and gradients of their sum, by autograd in float64."""
        x = {
            name: torch.tensor(part, dtype=torch.float64, requires_grad=True)
            for name, part in self.parameters.items()
        }
        relu = torch.relu(x["first"] + x["bias1"])
        x["activation"] = relu * x["scale"] + x["shift"] if self.normed else relu
        x["activation"].retain_grad()
        hidden = x["activation"] * torch.from_numpy(self.boost)
        logs = torch.log_softmax(hidden @ x["weight2"] + x["bias2"], dim=-1)
        own = logs[torch.arange(self.nodes), :, torch.from_numpy(self.labels)]
        supervised = -(own * torch.from_numpy(self.label_weights).double()[:, None]).sum()
        chances = logs.exp()
        with torch.no_grad():
            guess = torch.softmax(chances.mean(dim=1).log() / self.temperature, dim=-1)
        consistency = (chances - guess[:, None]).pow(2).sum()
        (supervised + self.consistency_weight * consistency).backward()
        gradients = {name: part.grad.numpy() for name, part in x.items() if part.grad is not None}
        return gradients | {"supervised": supervised.item(), "consistency": consistency.item()}

    @property
    def boost(self) -> np.ndarray:
        """The factors of dropout (nodes, views, hidden)."""
        return self.kept.transpose(1, 0, 2) / (1.0 - self.drop_rate)

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        given_parts = {
            "first": self.first,
            "bias1": self.bias1,
            "scale": self.scale,
            "shift": self.shift,
            "weight2": self.weight2,
            "bias2": self.bias2,
        }
        return {name: part for name, part in given_parts.items() if part is not None}

    def expected(self) -> dict[str, Rounded]:
        """The same by formulas, with a bound on what float32 may be off."""
        x = {name: Rounded(part.astype(np.float64)) for name, part in self.parameters.items()}
        linear = x["first"] + x["bias1"]
        relu: Any = np.maximum(linear, 0.0)  # type: ignore[call-overload]
        activation = relu * x["scale"] + x["shift"] if self.normed else relu
        hidden = activation * self.boost
        logits = hidden @ x["weight2"] + x["bias2"]
        shifted = logits - logits.max(axis=-1, keepdims=True)
        raised = np.exp(shifted)
        total = raised.sum(axis=-1, keepdims=True)
        chances = raised / total
        logs = shifted - np.log(total)
        weights = self.label_weights.astype(np.float64)[:, None]
        right = np.eye(self.classes)[self.labels][:, None]
        guess = sharpened(chances.sum(axis=1, keepdims=True) / self.views, self.temperature)
        distance = chances - guess
        pull = 2.0 * self.consistency_weight * distance
        slopes = chances * (pull - (pull * chances).sum(axis=-1, keepdims=True))
        slopes = slopes + weights[..., None] * (chances - right)
        back = slopes @ x["weight2"].T * self.boost
        wide = slopes.reshape(-1, self.classes)
        result = {
            "supervised": -(logs * right * weights[..., None]).sum(),
            "consistency": np.square(distance).sum(),  # type: ignore[call-overload]
            "weight2": hidden.reshape(-1, self.hidden).T @ wide,
            "bias2": wide.sum(axis=0),
        }
        # With a norm it is the gradient of the norm's output; the bias waits for ``through_norm``.
        if self.normed:
            summed = {"scale": (back * relu).sum(axis=0), "shift": back.sum(axis=0)}
            return result | summed | {"activation": back}
        first = back * np.greater(linear, 0)  # type: ignore[call-overload]
        return result | {"first": first, "bias1": first.sum(axis=0)}


def results(case: Case, in_place: bool = False) -> dict[str, Any]:
    """Return what the kernel computes, by the names of the formulas."""
    found, out = case.learnt(in_place)
    assert not found.weight2[case.hidden :].any()
    assert not found.bias2[case.classes :].any(), "a class that does not exist was learnt"
    down_to, *summed = ("activation", "scale", "shift") if case.normed else ("first", "bias1")
    computed: dict[str, Any] = {
        "supervised": found.supervised,
        "weight2": found.weight2[: case.hidden],
        "bias2": found.bias2[: case.classes],
        down_to: case.narrowed(out),
        **{name: case.narrowed(getattr(found, name))[0] for name in summed},
    }
    if not case.consistency_weight:
        assert found.consistency == 0.0
        return computed
    return computed | {"consistency": found.consistency}


def assert_learnt(case: Case, in_place: bool = False) -> None:
    """The kernel's results are within the bounds of the formulas."""
    expected = case.expected()
    for name, found in results(case, in_place).items():
        expected[name].assert_near(found, name)


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 3), st.sampled_from([0.2, 0.5]), st.booleans())
def test_the_formulas_are_autograds(
    seed: int, views: int, temperature: float, normed: bool
) -> None:
    case = Case(seed, nodes=7, views=views, temperature=temperature, normed=normed)
    found = case.by_autograd()
    for name, expected in case.expected().items():
        # Some hundred roundings of float64.
        bound = 100 * 2.0**-53 * expected.size.max()
        assert np.all(np.abs(found[name] - expected.value) <= bound), name


@settings(max_examples=120)
@given(
    st.builds(
        Case,
        SEEDS,
        nodes=st.sampled_from([1, 2, 7, 9, 40]),
        views=st.integers(1, 5),
        hidden=st.sampled_from([16, 32, 48, 64, 6, 20]),
        classes=st.sampled_from([2, 3, 7, 16, 17, 40]),
        temperature=st.sampled_from([0.1, 0.2, 0.5, 0.9, 1.0]),
        consistency_weight=st.sampled_from([0.0, 0.01, 1.0, 3.0]),
        labelled=st.sampled_from([0.0, 0.3, 1.0]),
        drop_rate=st.sampled_from([0.0, 0.5, 0.8]),
        normed=st.booleans(),
    ),
    st.booleans(),
)
def test_losses_and_gradients_are_those_of_the_formulas(case: Case, in_place: bool) -> None:
    assert_learnt(case, in_place and not case.normed)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("nodes", [8, 100, 2000])
def test_more_nodes_than_there_are_chunks(nodes: int, normed: bool) -> None:
    assert_learnt(Case(0, nodes=nodes, views=4, normed=normed))


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("hidden", [80, 130])
def test_more_units_than_a_word_has_bits(hidden: int, normed: bool) -> None:
    assert_learnt(Case(3, hidden=hidden, normed=normed))


@pytest.mark.parametrize("views", [1, 2, 4])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0])
def test_extreme_logits_stay_finite(views: int, temperature: float) -> None:
    """Of 200 and of -200: the chance of all classes but one is zero in float32."""
    for normed in (False, True):
        case = Case(1, views=views, temperature=temperature, labelled=1.0, normed=normed)
        case.weight2[:] = 0.0
        case.bias2[:] = np.tile([200.0, -200.0], 4)[: case.classes]
        found, out = case.learnt()
        assert_learnt(case)
        for part in (out, found.weight2, found.bias2, found.bias1, found.scale, found.shift):
            assert np.isfinite(part).all()
        # Nodes of an impossible class cost 400 each, and what they should be is still known.
        wrong = case.label_weights[case.labels % 2 == 1].astype(np.float64).sum()
        right = case.label_weights[case.labels % 2 == 0].astype(np.float64).sum()
        expected = views * (400 * wrong + np.log(4) * (wrong + right))
        summands = case.classes + views * case.nodes
        assert found.supervised == pytest.approx(expected, rel=lost(summands))


@settings(max_examples=30)
@given(SEEDS, st.integers(2, 4), st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([30.0, 200.0]))
def test_views_that_contradict_each_other(
    seed: int, views: int, temperature: float, size: float
) -> None:
    """Large weights: every view is certain, of another class than the others."""
    assert_learnt(Case(seed, views=views, temperature=temperature, size=size))


@pytest.mark.parametrize("classes", [1, 15, 16, 17])
def test_padded_classes_have_no_chance(classes: int) -> None:
    bias2 = np.arange(classes, dtype=np.float32)
    wide = pad_bias2(bias2)
    assert wide.shape == (1, padded(classes))
    np.testing.assert_array_equal(wide[0, :classes], bias2)
    assert np.all(wide[0, classes:] < -1e29)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("normed", [False, True])
def test_the_number_of_threads_does_not_show(normed: bool) -> None:
    results = []
    for number in (1, 2):
        torch.set_num_threads(number)
        case = Case(2, nodes=301, views=3, normed=normed)
        found, out = case.learnt()
        first, bias1 = case.widened(case.first), case.widened(case.bias1)
        statistics = activation_statistics(first, bias1)
        factor, slope, offset = case.widened(case.first[:3])[:, None]
        bias = through_norm(first, bias1, factor, slope, offset, out)
        results.append([out, bias, *statistics, *vars(found).values()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@given(
    SEEDS,
    st.sampled_from([1, 2, 9, 127, 129, 1500]),
    st.sampled_from([16, 48, 80]),
    st.sampled_from([-2.0, 0.0, 3.0]),
)
def test_statistics_of_activations(seed: int, nodes: int, width: int, level: float) -> None:
    generator = np.random.default_rng(seed)
    first = generator.standard_normal((nodes, width)).astype(np.float32)
    bias1 = generator.normal(level, 1.0, (1, width)).astype(np.float32)
    first[:, 0], bias1[0, 0] = 0.0, 2.0
    first[:, 1], bias1[0, 1] = 0.0, -2.0
    mean, variance = activation_statistics(first, bias1)
    active = np.maximum(first.astype(np.float64) + bias1, 0.0)
    # Sums of 128 in float32: each addition may round, and each activation has been rounded itself.
    sizes = active.mean(axis=0)
    assert np.all(np.abs(mean - sizes) <= lost(129) * sizes)
    # The same of squares around the mean; there the difference and the square round, too, and a
    # rounding δ of an activation adds up to 2δ(x - mean) + δ².
    exact, rounding = active.var(axis=0), UNIT * active.max(axis=0)
    allowed = lost(131) * exact + 2 * rounding * np.sqrt(exact) + rounding**2
    assert np.all(np.abs(variance - exact) <= allowed)
    assert np.all(variance >= 0)
    assert variance[:2].tolist() == [0.0, 0.0]
    assert mean[:2].tolist() == [2.0, 0.0]


@given(SEEDS, st.sampled_from([2, 9, 130, 700]), st.sampled_from([16, 48]))
def test_the_way_back_through_a_norm_is_autograds(seed: int, nodes: int, width: int) -> None:
    generator = np.random.default_rng(seed)
    first, gradient = generator.standard_normal((2, nodes, width)).astype(np.float32)
    bias1, gain, shift = generator.standard_normal((3, 1, width)).astype(np.float32)
    x, bias = (
        torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in (first, bias1)
    )
    relu = torch.relu(x + bias)
    normed = torch.nn.functional.batch_norm(
        relu, None, None, torch.tensor(gain[0]).double(), torch.tensor(shift[0]).double(), True
    )
    (normed * torch.tensor(gradient)).sum().backward()

    active = relu.detach().numpy()
    mean, inverse = active.mean(axis=0), 1.0 / np.sqrt(active.var(axis=0) + 1e-5)
    factor = gain * inverse
    unit = (active - mean) * inverse
    # d/dx of gain · (x - mean) / deviation: the gradient less its mean, less its share along x.
    along = (gradient * unit).mean(axis=0)
    slope = -factor * inverse * along
    offset = -factor * gradient.astype(np.float64).mean(axis=0) - slope * mean
    result = gradient.copy()
    one, two, three = (part.astype(np.float32) for part in (factor, slope, offset))
    summed = through_norm(first, bias1, one, two, three, result)
    sizes = np.abs(factor) * np.abs(gradient) + np.abs(slope) * active + np.abs(offset)
    assert x.grad is not None
    assert bias.grad is not None
    # The three factors are rounded; then two products and two sums.
    assert np.all(np.abs(result - x.grad.numpy()) <= 5 * UNIT * sizes)
    sums = sizes.sum(axis=0)
    assert np.all(np.abs(summed - bias.grad.numpy()[0]) <= lost(5 + nodes) * sums)
    assert not result[first + bias1 <= 0].any()


@pytest.mark.parametrize("mean", [10, 100, 1000])
def test_variance_far_from_zero_keeps_its_digits(mean: int) -> None:
    x = np.random.default_rng(0).standard_normal((20_000, 16)).astype(np.float32)
    _, variance = activation_statistics(x, np.full((1, 16), mean, np.float32))
    exact = np.maximum(x + np.float32(mean), 0).astype(float).var(axis=0)
    # A difference, a square, and sums of 128 of them.
    np.testing.assert_allclose(variance, exact, rtol=lost(130))
