"""A training step of GRAND and its inference by the oracle, from the same configuration and masks.

Only masks and parameters come from the package. The rest is computed again in ``oracles.py``, with
a bound on what float32 may be off, and compared within that bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import oracles
from dropnode.graph import Graph
from dropnode.methods.grand.config import GrandConfig
from dropnode.ops.randomness import Stream, keep_mask
from oracles import Weights
from rounding import Rounded

LARGE = 400
"""Above so many nodes, a matrix of all pairs of nodes is sparse."""


def move_from_the_start(head: torch.nn.Module) -> None:
    """Move away from zero biases and unit norms, where a forgotten term would not show."""
    with torch.no_grad():
        for name, value in head.named_parameters():
            if "norm" in name or "bias" in name:
                generator = torch.Generator().manual_seed(len(name))
                value.add_(torch.randn(value.shape, generator=generator), alpha=0.3)


def weights_of(head: torch.nn.Module) -> Weights:
    """The parameters, in float64."""
    return {name: value.detach().double().numpy().copy() for name, value in head.named_parameters()}


@dataclass(frozen=True)
class StepResult:
    """What a step tells and changes; if expected, with a bound on the error of float32."""

    losses: Weights
    gradients: Weights
    buffers: Weights

    @classmethod
    def of(cls, method: Any, graph: Graph, stream: Stream) -> StepResult:
        """Compute the step that a method is about to take."""
        class_weights, repeats = method.class_weights, method.node_weights
        if class_weights is not None:
            class_weights = class_weights.double().numpy()
        if repeats is not None:
            repeats = repeats.numpy().astype(int)
        step = oracle_step(method.config, graph, stream, class_weights, repeats)
        return cls.from_here(method.head, step)

    @classmethod
    def from_here(cls, head: torch.nn.Module, step: oracles.Step) -> StepResult:
        """Compute a step from the present weights of a head."""
        weights = {name: Rounded(value) for name, value in weights_of(head).items()}
        (loss, supervised, consistency), gradients, values = step.learn(weights)
        losses = {"loss": loss, "supervised": supervised, "consistency": consistency}
        if not step.consistency_weight:
            losses = {"loss": supervised, "supervised": supervised}
        before = {
            name: Rounded(value.double().numpy().copy()) for name, value in head.named_buffers()
        }
        return cls(losses, gradients, _buffers(step, values, before))

    def assert_taken_by(self, method: Any, stream: Stream) -> None:
        """Let a method take the step, and compare."""
        taken = take_step(method, stream)
        for kind, found in vars(taken).items():
            self.assert_agrees(kind, found)

    def assert_agrees(self, kind: str, found: Weights) -> None:
        """Compare the losses, the gradients or the buffers."""
        expected = getattr(self, kind)
        assert set(found) == set(expected)
        for name, value in found.items():
            expected[name].assert_near(value, f"{name} of the {kind}")


def take_step(method: Any, stream: Stream) -> StepResult:
    """Return what a method tells and changes in a step, in float32."""
    method.head.zero_grad()
    loss, parts = method.loss(None, stream)
    loss.backward()
    head = method.head
    return StepResult(
        {name: part.detach() for name, part in ({"loss": loss} | parts).items()},
        {name: parameter.grad for name, parameter in head.named_parameters()},
        {n: value for n, value in head.named_buffers() if not n.endswith("num_batches_tracked")},
    )


def oracle_step(
    config: GrandConfig,
    graph: Graph,
    stream: Stream,
    class_weights: np.ndarray | None = None,
    repeats: np.ndarray | None = None,
) -> oracles.Step:
    """One training step, with masks drawn from the product's addresses.

    ``repeats`` is how often the loss term of each node occurs.
    """
    features, operator = _features(config, graph), _operator(graph)
    rate = config.drop_rate
    scale = 1 / (1 - rate) if config.mask_scaling == "training" else 1.0
    shape = features.shape
    views = []
    for s in range(config.augmentations):
        own = stream.at("augmentation", s)
        address = own.at("perturbation")
        seen, propagates = features, operator
        if config.perturbation == "dropnode":
            seen = features * (scale * keep_mask(address, (shape[0],), rate))[:, None]
        elif config.perturbation == "dropedge":
            kept = keep_mask(address, (int(np.count_nonzero(operator.value)),), rate)
            propagates = operator * (scale * _stored(operator.value, kept))
        else:
            seen = features * (scale * _entries(graph, address, rate))
        input_mask: Any = 1.0
        if config.input_dropout:
            rate1, place = config.input_dropout, own.at("input")
            if config.input_dropout_on == "propagated":
                input_mask = keep_mask(place, shape, rate1) / (1 - rate1)
            elif config.input_dropout_on == "columns":
                # After the norm: a feature that is dropped contributes nothing, nor its offset.
                input_mask = keep_mask(place, shape[1:], rate1) / (1 - rate1)
            else:
                seen = seen * (_entries(graph, place, rate1) / (1 - rate1))
        hidden_mask = keep_mask(own.at("hidden"), (shape[0], config.hidden), config.hidden_dropout)
        views.append(
            oracles.View(seen, propagates, input_mask, hidden_mask / (1 - config.hidden_dropout))
        )
    assert graph.split is not None
    rows = graph.split.train
    if repeats is not None:
        rows = np.repeat(rows, repeats[rows])
    return oracles.Step(
        views,
        config.order,
        rows,
        graph.labels[rows],
        config.consistency_weight,
        config.temperature,
        config.reduction,
        operator if config.head == "gcn" else None,
        class_weights,
        _fixed(config, graph),
    )


def trained(
    config: GrandConfig, graph: Graph, seed: int, head: torch.nn.Module
) -> tuple[list[Weights], Weights]:
    """Train from the present weights of a head; return the losses of all epochs, and the weights.

    For a graph without validation nodes, whose last weights are kept.
    """
    weights: Weights = {name: Rounded(value) for name, value in weights_of(head).items()}
    adam = oracles.Adam(config.learning_rate, config.weight_decay)
    records = []
    for epoch in range(1, config.max_epochs + 1):
        stream = Stream(seed).at("phase", 0).at("epoch", epoch).at("batch", 0)
        losses, gradient, _ = oracle_step(config, graph, stream).learn(weights)
        records.append(dict(zip(("loss", "supervised", "consistency"), losses, strict=True)))
        weights = adam.step(weights, gradient)
    return records, weights


def assert_trained(
    expected: tuple[list[Weights], Weights], history: list[dict[str, float]], head: torch.nn.Module
) -> None:
    """Compare the history and the weights of a training with those of :func:`trained`."""
    records, weights = expected
    for epoch, (record, found) in enumerate(zip(records, history, strict=True), start=1):
        for name, loss in record.items():
            loss.assert_near(found[name], f"{name} of epoch {epoch}")
    for name, value in weights_of(head).items():
        weights[name].assert_near(value, f"{name} after {len(records)} epochs")


def exact(step: oracles.Step) -> oracles.Step:
    """Return the step without bounds, for many evaluations."""

    def value(x: Any) -> Any:
        return x.value if isinstance(x, Rounded) else x

    return replace(
        step,
        views=[
            replace(view, features=value(view.features), operator=value(view.operator))
            for view in step.views
        ],
        convolution=value(step.convolution),
        fixed=step.fixed and (value(step.fixed[0]), value(step.fixed[1])),
    )


def inferred_logits(method: Any, graph: Graph, features: Rounded | None = None) -> Rounded:
    """The logits of unperturbed features, scaled as the configuration says."""
    config, head = method.config, method.head
    weights = {name: Rounded(value) for name, value in weights_of(head).items()}
    state = {name: Rounded(value.double().numpy()) for name, value in head.named_buffers()}
    x = _clean(config, graph, features)
    convolution = _operator(graph) if config.head == "gcn" else None
    for layer, end in (("1", False), ("2", True)):
        if f"norm{layer}.weight" in weights:
            fixed = _fixed(config, graph) if layer == "1" else None
            mean, deviation = fixed or (
                state[f"norm{layer}.running_mean"],
                np.sqrt(state[f"norm{layer}.running_var"] + 1e-5),
            )
            gain, shift = weights[f"norm{layer}.weight"], weights[f"norm{layer}.bias"]
            x = gain * (x - mean) / deviation + shift
        x = x @ weights[f"weight{layer}"]
        x = (x if convolution is None else convolution @ x) + weights[f"bias{layer}"]
        x = x if end else np.maximum(x, 0.0)
    return x  # type: ignore[no-any-return]


def _buffers(step: oracles.Step, values: list[Weights], before: Weights) -> Weights:
    """Statistics after the step: those that run take a tenth of every view's."""
    found = {}
    if step.fixed is not None:
        found["norm1.mean"], found["norm1.deviation"] = step.fixed
    for layer, place in (("norm1", "propagated"), ("norm2", "relu")):
        if f"{layer}.running_mean" not in before:
            continue
        mean, var = (before[f"{layer}.running_{what}"] for what in ("mean", "var"))
        for each in values:
            x = each[place]
            mean = 0.9 * mean + 0.1 * x.mean(axis=0)
            var = 0.9 * var + 0.1 * (len(x) / (len(x) - 1)) * x.var(axis=0)
        found |= {f"{layer}.running_mean": mean, f"{layer}.running_var": var}
    return found


def _features(config: GrandConfig, graph: Graph) -> Rounded:
    sparse = sp.issparse(graph.features)
    raw = graph.features.toarray() if sparse else graph.features
    raw = raw.astype(np.float64)
    if config.feature_scaling == "binary":
        raw = (raw != 0).astype(np.float64)
    if config.feature_scaling in ("row", "binary"):
        return Rounded(oracles.row_normalised(raw), steps=2)
    if config.feature_scaling == "none":
        return Rounded(raw)
    if config.feature_scaling == "unit":
        lengths = np.linalg.norm(raw, axis=1, keepdims=True)
        return Rounded(raw / np.where(lengths > 0, lengths, 1.0), steps=3)
    assert config.feature_scaling == "standard"
    return standardised(raw, 0.0 if sparse else raw.mean(axis=0), raw.std(axis=0))


def standardised(raw: oracles.Array, mean: Any, deviation: oracles.Array) -> Rounded:
    """Features of zero mean and unit deviation; those without a deviation are only centred."""
    deviation = np.where(deviation > 0, deviation, 1.0)
    return Rounded((raw - mean) / deviation, (abs(raw) + abs(mean)) / deviation, steps=4)


def _operator(graph: Graph) -> Rounded:
    large = graph.num_nodes > LARGE
    return Rounded(
        oracles.normalised(graph.adjacency if large else graph.adjacency.toarray()), steps=1
    )


def _clean(config: GrandConfig, graph: Graph, features: Rounded | None = None) -> Rounded:
    """Propagated features without randomness."""
    factor = 1 - config.drop_rate if config.mask_scaling == "inference" else 1.0
    features, operator = features or _features(config, graph), _operator(graph)
    if config.perturbation == "dropedge":
        operator = Rounded(operator.value * factor, steps=2)
    else:
        features = features * factor
    result: Rounded = oracles.propagated(operator, config.order, features)
    return result


def _fixed(config: GrandConfig, graph: Graph) -> tuple[Rounded, Rounded] | None:
    """Mean and deviation of a norm that is fitted to the clean features once."""
    if not config.batch_norm or config.input_norm != "fixed":
        return None
    clean = _clean(config, graph)
    return clean.mean(axis=0), np.sqrt(clean.var(axis=0) + 1e-5)


def _entries(graph: Graph, stream: Stream, rate: float) -> oracles.Array:
    """Zeros and ones for entries of X: one decision for each that is stored."""
    if not sp.issparse(graph.features):
        return keep_mask(stream, graph.features.shape, rate).astype(float)
    kept = keep_mask(stream, (graph.features.nnz,), rate)
    return _stored(graph.features.toarray(), kept)


def _stored(matrix: oracles.Array, kept: np.ndarray) -> oracles.Array:
    return oracles.drop_stored((matrix != 0).astype(float), kept)
