"""Gradient-boosted trees on the features and their propagated forms: X, ÂX, Â²X side by side.

A lower bound that users of tables would try first: the strongest simple classifier, and
propagation as a way to make columns. scikit-learn's histogram gradient boosting fits it, on the
labelled nodes alone. Validation chooses how many rounds are kept, those of the lowest
cross-entropy; without validation all are.

Trees look at every column of every node, so that wide features are first reduced: to the
coordinates of the leading singular vectors of X (a truncated SVD, of all nodes, without labels),
found at random from the seed. Reducing first and propagating then is the same as the other way
round, because both are linear.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.extmath import randomized_svd
from torch import nn

from dropnode.graph import Graph, Split
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.boosted_trees import Trees
from dropnode.methods.baselines.closed_form import NEVER, ClosedForm, ClosedFormConfig
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import SparseMatrix
from dropnode.settings import Config, count, positive, repeats, weight
from dropnode.training import Outcome, State


@dataclass(frozen=True, kw_only=True)
class BoostingConfig(ClosedFormConfig):
    """Settings of gradient boosting.

    Attributes
    ----------
    order : the highest power of Â whose product with X is among the columns
    components : the most columns that X may have; more are reduced by a truncated SVD
    rounds : rounds of boosting, each with a tree per class
    learning_rate : the share of each tree that is added
    leaves : the most leaves of a tree
    least_leaf : the fewest labelled nodes in a leaf, or an eighth of them if that is less
    l2 : penalty of large leaves
    """

    order: int = repeats(least=0)
    components: int = count()
    rounds: int = repeats()
    learning_rate: float = positive()
    leaves: int = count()
    least_leaf: int = count()
    l2: float = weight()


class Boosting(ClosedForm):
    """Boosted trees on propagated features."""

    name = "boosting"
    config_type = BoostingConfig
    config: BoostingConfig
    draws_from_torch = False

    @property
    def hops(self) -> int:
        """One hop per power of Â."""
        return self.config.order

    def make_network(self, sizes: Sizes) -> nn.Module:
        """Return a module for arrays that fitting or loading puts there."""
        return nn.Module()

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Fit the reduction and the trees."""
        config = self.config
        projection = self._fit_projection(stream)
        self.load_state({} if projection is None else {"projection": projection})
        model = HistGradientBoostingClassifier(
            max_iter=config.rounds,
            learning_rate=config.learning_rate,
            max_leaf_nodes=max(config.leaves, 2),
            # With few labels, no tree could split at all.
            min_samples_leaf=max(min(config.least_leaf, len(split.train) // 8), 1),
            l2_regularization=config.l2,
            early_stopping=False,
            random_state=0,
        )
        weights = None if self.train_weights is None else self.train_weights.cpu().numpy()
        rows = self._columns(self.tensors)
        targets = graph.labels[split.train]
        model.fit(rows[split.train], targets, weights)
        trees = Trees.of(model)
        classes = np.asarray(model.classes_, dtype=np.int64)
        if len(split.val):
            stages = _of_classes(trees.stages(rows[split.val]), classes, self.sizes.classes)
            logs = torch.from_numpy(stages).log_softmax(dim=2).numpy()
            losses = -logs[:, np.arange(len(split.val)), graph.labels[split.val]].mean(axis=1)
            trees = trees.first(int(losses.argmin()) + 1)
        arrays = {each.name: getattr(trees, each.name) for each in fields(Trees)}
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.load_state(self.state() | state | {"classes": torch.from_numpy(classes)})

    def _fit_projection(self, stream: Stream) -> torch.Tensor | None:
        features, most = self.tensors.features, self.config.components
        if features.shape[1] <= most:
            return None
        matrix = features.to_scipy() if isinstance(features, SparseMatrix) else features.numpy()
        seed = int(stream.at("projection").generator().integers(2**31))
        _, _, directions = randomized_svd(matrix, min(most, min(matrix.shape)), random_state=seed)
        return torch.from_numpy(np.ascontiguousarray(directions.T, dtype=np.float32))

    def _columns(self, tensors: GraphTensors) -> np.ndarray:
        """Return X, ÂX, ... side by side, as trees read them."""
        x: Any = tensors.features
        projection = self.state().get("projection")
        if projection is not None:
            x = x @ projection
        elif isinstance(x, SparseMatrix):
            x = x.to_dense()
        powers = [x]
        for _ in range(self.config.order):
            powers.append(tensors.operator @ powers[-1])
        return torch.cat(powers, dim=1).double().cpu().numpy()

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Return the sums of all trees."""
        state = {name: value.cpu().numpy() for name, value in self.state().items()}
        trees = Trees(**{each.name: state[each.name] for each in fields(Trees)})
        rows = self._columns(tensors)
        sums = _of_classes(trees.predict(rows)[None], state["classes"], self.sizes.classes)[0]
        return torch.from_numpy(sums.astype(np.float32)).to(self.device)

    def trained_as_long(self, outcome: Outcome) -> Config:
        """Return the configuration with as many rounds as were kept."""
        state = self.state()
        rounds = (len(state["starts"]) - 1) // len(state["baseline"])
        config: Config = self.config.replace(rounds=rounds)
        return config

    def load_state(self, state: State) -> None:
        """Put arrays in place, of any size, because trees grow as the data ask."""
        for name, value in state.items():
            self.network.register_buffer(name, value.to(self.device))
        if "starts" in state:
            arrays = {each.name: state[each.name].cpu().numpy() for each in fields(Trees)}
            width = min(self.sizes.features, self.config.components)
            if "projection" in state and state["projection"].shape[0] != self.sizes.features:
                raise ValueError(
                    f"the projection has {len(state['projection'])} rows for "
                    f"{self.sizes.features} features"
                )
            Trees(**arrays).check(width * (self.config.order + 1))


def _of_classes(sums: np.ndarray, classes: np.ndarray, number: int) -> np.ndarray:
    """Return logits of all classes (stages, rows, classes), given the sums of those trained on."""
    if len(classes) == 2:
        # scikit-learn has trees for the second class alone.
        sums = np.concatenate([-sums, sums], axis=2) / 2
    logits = np.full((*sums.shape[:2], number), NEVER)
    logits[:, :, classes] = sums
    return logits
