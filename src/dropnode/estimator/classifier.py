"""GrandClassifier: GRAND and the baselines as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

import dropnode
from dropnode.errors import ConfigError, GraphError, ModelError
from dropnode.estimator.fitting import Fitted, Job, fitted, fitted_members
from dropnode.estimator.inputs import (
    labelled_nodes,
    names_of,
    new_edges,
    node_rows,
    node_weights,
    read_labels,
    same_nodes,
    table_graph,
)
from dropnode.estimator.labels import own_split, scored_nodes, validation_record
from dropnode.estimator.parameters import (
    UNVALIDATED_EPOCHS,
    check_parameters,
    configured,
    lists_configuration_keys,
    restored,
    stored,
)
from dropnode.files import to_path
from dropnode.graph import Graph
from dropnode.graph.arrays import Matrix, held_like, plain
from dropnode.graph.foreign import refuse_graph
from dropnode.graph.labels import UNKNOWN
from dropnode.graph.neighbours import NeighbourIndex
from dropnode.graph.nodes import canonical
from dropnode.memory import check_memory
from dropnode.methods.base import NodeClassifier
from dropnode.methods.ensemble import Ensemble
from dropnode.methods.grand.config import GrandConfig
from dropnode.saving import load_model, save_model
from dropnode.settings import read_value, suggestion
from dropnode.settings import seed as seed_field
from dropnode.training.progress import StepsBar

if TYPE_CHECKING:
    from dropnode.tables import Encoders


class GrandClassifier(ClassifierMixin, BaseEstimator):
    """Classify the nodes of a graph, or the rows of a table, from a few labels.

    With a table and no graph, every row is connected to its nearest rows, so that unlabelled rows
    help to classify: a drop-in for :class:`sklearn.semi_supervised.LabelSpreading`.

    Parameters
    ----------
    preset : str, optional
        The set of values that the configuration starts from. By default ``"official"`` for a graph
        of :func:`dropnode.load_dataset` that has such a preset, else ``"default"``.
    method : str
        ``"grand"``, one of its variants such as ``"grand-gcn"``, ``"grand-plus"``, or a baseline
        such as ``"gcn"``;
        see :data:`dropnode.methods.table.METHODS`.
    graph : Graph, optional
        The graph that the rows of X are nodes of: then X has one column, with ids of nodes, and
        y has their labels. scikit-learn can cut such rows into folds, which it cannot do with the
        edges between them. All nodes, edges and features are seen, and no labels but those in y:
        the labels and the split of the graph itself are not read. See
        :class:`~dropnode.model_selection.TransductiveKFold`.
    n_neighbors : int
        How many rows each row is connected to if no graph is given. Distances are Euclidean, on
        unscaled features: put a :class:`~sklearn.preprocessing.StandardScaler` in front if their
        units differ.
    validation_fraction : float or None
        The fraction of the labels of each class that a first training holds out, to find the number
        of epochs. Then the model is trained again, for that many epochs, on all labels, because few
        labels are too few to spare any. If it is None, or a class has a single label, there is no
        validation: all labels are used for training, for 200 epochs or ``max_epochs``; with fewer
        than ten labels of a class, the preset ``default`` then has no consistency loss. A graph
        that has a split is trained and validated once, with that split.
    class_weight : dict or "balanced", optional
        The weight of each class in the loss: by class, or inversely proportional to its number of
        labels.
    random_state : int, RandomState or None
        The seed of the run. With None, one is drawn and stored in ``seed_``.
    device : str
        The device to compute on, as torch names it.
    verbose : bool
        Whether to show the progress of training on stderr: a bar in a terminal, elsewhere a line
        every ten seconds and one at the end.
    options : dict, optional
        Configuration keys that only other methods have, such as ``{"teleport": 0.2}`` of
        ``"appnp"``.
    ensemble : int
        How many times to train, with the seeds from ``random_state`` on. Predictions are the mean
        of the members' probabilities. Members are trained side by side in processes of one thread
        each. ``history_``, ``validation_`` and ``best_epoch_`` are those of the first.
    **config
        Any key of :class:`dropnode.methods.grand.config.GrandConfig`, such as ``hidden=32`` or
        ``order=4``; None leaves it to the preset. A key that the chosen method does not have is an
        error.

    Attributes
    ----------
    classes_ : ndarray
        The classes, of the same type as in ``y``; for a Graph, its class names.
    n_features_in_, feature_names_in_
        The number of features, and their names if the table had a header.
    graph_ : Graph
        The training graph, with the split that was used.
    transduction_ : ndarray
        The class of every node of the training graph, as predicted: computed when it is asked for.
    validated_ : bool
        Whether validation nodes chose the number of epochs.
    method_, config_, preset_, seed_
        The trained method, its configuration, the name of the preset, the seed.
    history_, validation_history_ : list of dict
        Losses and accuracies of every epoch: of the training whose weights were kept, and of the
        training that was validated. The second is empty without validation, and the same as the
        first if there was only one training.
    validation_ : dict
        What the validation nodes measured in the epoch that they chose, and how many ``nodes``
        they are; empty without validation.
    best_epoch_, n_iter_ : int
        The epoch whose weights were kept, and the number of epochs run.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> few = np.where(np.arange(len(y)) % 12 == 0, y, -1)  # fifteen labels of 178
    >>> model = GrandClassifier(max_epochs=50, random_state=0).fit(X, few)
    >>> round(model.score(X, y), 2)
    0.98
    """

    preset_: str | None
    seed_: int | None
    max_epochs: int | None
    _index: NeighbourIndex | None = None

    @lists_configuration_keys
    def __init__(
        self,
        preset: str | None = None,
        *,
        method: str = "grand",
        graph: Graph | None = None,
        n_neighbors: int = 10,
        validation_fraction: float | None = 0.2,
        class_weight: dict[Any, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: bool = False,
        options: dict[str, Any] | None = None,
        ensemble: int = 1,
        **config: Any,
    ) -> None:
        self.preset = preset
        self.method = method
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.options = options
        self.ensemble = ensemble
        for name in GrandConfig.names():
            setattr(self, name, config.pop(name, None))
        for name in config:
            known = suggestion(name, self._get_param_names())
            raise TypeError(f"GrandClassifier has no parameter {name!r}{known}")

    def fit(
        self, X: Any, y: Any = None, graph: Any = None, sample_weight: Any = None
    ) -> GrandClassifier:
        """Train on a graph, or on a table.

        Parameters
        ----------
        X : Graph, or array, data frame or sparse matrix of shape (nodes, features), or nodes
            A Graph has its own labels and edges, and perhaps a split. Features are those of all
            nodes, including the nodes to classify. Ids of nodes, if the constructor got a graph.
        y : sequence, optional
            One label per row of features; -1, None or NaN if it is unknown.
        graph : sparse or dense matrix of shape (nodes, nodes), optional
            Edge weights between the rows of features; by default, nearest neighbours are connected.
            (For a list of edges, build a Graph with :meth:`Graph.from_edges`.)
        sample_weight : sequence of numbers, optional
            The weight of each row's label in the supervised loss, besides that of its class: a
            weight of 2 counts as much as a label that occurs twice, and one of 0 not at all. For a
            Graph, one per node. Weights of rows without a label do not count, and validation does
            not weight.
        """
        check_parameters(self.get_params(deep=False))
        nodes, classes, rows = self._training_graph(X, y, graph)
        weights = node_weights(sample_weight, rows, nodes.num_nodes)
        state = self.random_state
        seed = state if isinstance(state, Integral) else check_random_state(state).randint(2**31)
        seed = read_value(int, seed, "random_state", seed_field())
        epochs = UNVALIDATED_EPOCHS if self.max_epochs is None else self.max_epochs
        split = nodes.split or own_split(nodes, self.validation_fraction, int(seed), epochs)
        nodes.check_trainable(split)
        asked = {key: getattr(self, key) for key in GrandConfig.names()}
        asked = {key: value for key, value in asked.items() if value is not None}
        asked |= self.options or {}
        self.preset_, config = configured(self.method, self.preset, asked, nodes, split)
        self.seed_, self.validated_ = int(seed), len(split.val) > 0
        job = Job(
            self.method, config, nodes, split, classes, self.class_weight, weights, self.device
        )
        first, method = self._fitted(job, int(seed))
        outcome = first.outcome
        self.validation_history_ = first.validated.measured if self.validated_ else []
        self.validation_ = validation_record(first.validated, split)
        self._learnt(method, nodes.with_split(first.split), classes)
        self.history_ = outcome.measured
        self.best_epoch_, self.n_iter_ = outcome.best_epoch, outcome.epochs
        return self

    @property
    def transduction_(self) -> np.ndarray:
        """The class of every node of the training graph, as predicted."""
        return self.predict()

    def predict(self, X: Any = None, graph: Any = None, *, edges: Any = None) -> np.ndarray:
        """Return the most probable class of each node; see :meth:`predict_proba`."""
        codes = self._logits(X, graph, edges).argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any = None, graph: Any = None, *, edges: Any = None) -> np.ndarray:
        """Return the probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : Graph, features, or None
            None for the training nodes. A Graph, or features with ``graph``, is classified with
            its own edges; its features must mean the same as those of the training graph. With
            features alone, each row is connected to its nearest training rows, so that its
            prediction does not depend on the other rows of the call. Ids of nodes of the training
            graph, if the constructor got it.
        graph : sparse or dense matrix of shape (rows, rows), optional
            Edge weights between the rows of ``X``.
        edges : sparse or dense matrix of shape (rows, nodes) or (rows, nodes + rows), optional
            The rows of ``X`` are features of new nodes, which these edges join to nodes of the
            training graph, in its order, and to each other in the columns behind. The training
            graph stays as it was: new nodes receive its messages and send it none.

        Returns
        -------
        ndarray of shape (nodes, classes)
        """
        return np.asarray(softmax(self._logits(X, graph, edges), axis=1))

    def score(self, X: Any, y: Any = None, graph: Any = None) -> float:
        """Return the accuracy on nodes with a known label; unknown labels are ignored.

        For a Graph, these are the test nodes of its split. Without test nodes, they are all
        labelled nodes, except the training and validation nodes if it is the training graph. For
        features or nodes, they are the rows with a known ``y``: those whose label is -1, None or
        NaN do not count.
        """
        if isinstance(X, Graph) and y is not None:
            raise ConfigError("score received y in addition to a Graph, which has its own labels")
        codes = self._logits(X, graph).argmax(axis=1)
        if isinstance(X, Graph):
            rows = scored_nodes(X, self.graph_)
            # Another graph may number the same classes differently, so names are compared.
            actual, labels = np.array(X.class_names), X.labels
            predicted = np.array(self.graph_.class_names)[codes]
        else:
            labels, actual = read_labels(y)
            if len(labels) != len(codes):
                raise GraphError(
                    f"{len(labels):,} labels in y for {len(codes):,} rows of X; give one label "
                    "per row, -1 where it is unknown"
                )
            predicted = self.classes_[codes]
            rows = np.flatnonzero(labels != UNKNOWN)
            if len(rows) == 0:
                raise GraphError("no label in y is known; scoring needs at least one")
        return float(accuracy_score(actual[labels[rows]], predicted[rows]))

    def save(
        self,
        folder: str | Path,
        *,
        encoders: Encoders | None = None,
        trust: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the parameters, the trained model and its training graph to a folder.

        ``encoders`` and ``trust`` are kept with it, see
        :class:`~dropnode.table_model.TableModel`.
        """
        check_is_fitted(self, "method_")
        save_model(
            to_path(folder),
            self.method_,
            self.graph_,
            classes=self.classes_,
            provenance={"preset": self.preset_, "seed": self.seed_},
            extra={
                **stored(self.get_params(deep=False), self.seed_),
                "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
                "history": self.history_,
                "validation_history": self.validation_history_,
                "best_epoch": self.best_epoch_,
                "validation": self.validation_,
            },
            encoders=encoders,
            trust=trust,
        )

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> GrandClassifier:
        """Load a model of :meth:`save` or ``dropnode train``; predictions are bit-identical."""
        saved = load_model(to_path(folder), device)
        try:
            model = cls(**restored(saved) | {"device": device})
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"{folder} has parameters that dropnode {dropnode.__version__} cannot use "
                f"({error}); load it with the version that saved it, or train again"
            ) from error
        model._learnt(saved.method, saved.graph, saved.classes)
        model.n_features_in_ = saved.graph.num_features
        if saved.extra.get("feature_names"):
            model.feature_names_in_ = np.array(saved.extra["feature_names"], dtype=object)
        model.preset_, model.seed_ = (saved.provenance.get(key) for key in ("preset", "seed"))
        model.history_ = saved.extra.get("history", [])
        model.validation_history_ = saved.extra.get("validation_history", [])
        model.validation_ = saved.extra.get("validation", {})
        model.validated_ = bool(model.validation_history_)
        model.n_iter_ = len(model.history_)
        model.best_epoch_ = saved.extra.get("best_epoch", 0)
        return model

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _training_graph(self, X: Any, y: Any, graph: Any) -> tuple[Graph, np.ndarray, np.ndarray]:
        """Return the graph to train on, its classes, and the nodes that are the rows of X."""
        self._index = None
        if self.graph is not None:
            if graph is not None or isinstance(X, Graph):
                raise ConfigError(
                    "fit received a graph in addition to that of the constructor; give nodes and "
                    "their labels, fit(nodes, y), or leave graph= out of the constructor"
                )
            validate_data(self, self.graph.features, skip_check_array=True)
            return labelled_nodes(self.graph, X, y)
        if isinstance(X, Graph):
            if y is not None or graph is not None:
                raise ConfigError(
                    "fit received y or graph= in addition to a Graph, which has its own labels and "
                    "edges; call fit(graph) with nothing else, and give labels when you build the "
                    "Graph"
                )
            validate_data(self, X.features, skip_check_array=True)
            return X, np.array(X.class_names), np.arange(X.num_nodes)
        features = self._features(X, ensure_min_samples=2)
        codes, classes = read_labels(y)
        if graph is None:
            self._index = NeighbourIndex(features, self.n_neighbors)
        adjacency = graph if self._index is None else self._index.graph()
        nodes = table_graph(features, adjacency, (codes, names_of(classes)))
        return nodes, classes, np.arange(nodes.num_nodes)

    def _features(self, X: Any, **options: Any) -> Matrix:
        """Return a copy of the features of a table, checked as in scikit-learn."""
        refuse_graph(X, "a table of features")
        if isinstance(X, np.ma.MaskedArray) or sp.issparse(X):
            X = plain(X)
        elif isinstance(X, np.ndarray):
            check_memory(4 * X.size, f"X of shape {X.shape}", "give fewer rows")
        with np.errstate(over="ignore"):  # A number too large for float32 is reported as such.
            features = validate_data(
                self, X, accept_sparse="csr", dtype=np.float32, order="C", copy=True, **options
            )
        return canonical(features) if sp.issparse(features) else features

    def _fitted(self, job: Job, seed: int) -> tuple[Fitted, NodeClassifier]:
        """Train; return the training of the first seed, and what predicts."""
        if self.ensemble == 1:
            made = fitted(job, seed, verbose=self.verbose)
            return made, made.method
        # Known to be valid before any of them is trained.
        read_value(int, seed + self.ensemble - 1, "the seed of the last member", seed_field())
        console = Console(stderr=True, quiet=not self.verbose)
        with StepsBar("members trained", console) as bar:
            members = fitted_members(job, range(seed, seed + self.ensemble), bar.watch)
        return members[0], Ensemble([each.method for each in members])

    def _learnt(self, method: NodeClassifier, graph: Graph, classes: np.ndarray) -> None:
        self.method_, self.config_ = method, method.config
        self.graph_, self.classes_ = graph, classes

    def _logits(self, X: Any, graph: Any, edges: Any = None) -> np.ndarray:
        check_is_fitted(self, "method_")
        if edges is not None:
            if X is None or isinstance(X, Graph) or graph is not None:
                raise ConfigError(
                    "edges= joins new rows to the training graph; give their features as X, and "
                    "neither a Graph nor graph="
                )
            return self._new_logits(self._features(X, reset=False), edges)
        nodes = X
        if X is None or isinstance(X, Graph) or self.graph is not None:
            if graph is not None:
                raise ConfigError("graph= connects rows of features, but X has none; give both")
        elif graph is not None:
            nodes = table_graph(self._features(X, reset=False), graph, None)
        if isinstance(nodes, Graph) and same_nodes(nodes, self.graph_):
            # Label propagation knows its own graph alone.
            nodes = None
        if nodes is None or isinstance(nodes, Graph):
            return _as_doubles(self.method_.logits(nodes))
        if self.graph is not None:
            return _as_doubles(self.method_.logits(rows=node_rows(self.graph_, nodes)))
        return self._new_logits(self._features(nodes, reset=False))

    def _new_logits(self, features: Matrix, edges: Any = None) -> np.ndarray:
        """Return the logits of new rows, which receive messages from training nodes."""
        known, among = self.graph_.features, None
        features = held_like(features, known)
        if edges is not None:
            links, among = new_edges(edges, features.shape[0], self.graph_)
        else:
            if self._index is None:
                self._index = NeighbourIndex(known, self.n_neighbors)
            links = self._index.links(features)
        return _as_doubles(self.method_.new_logits(features, links, among))


def _as_doubles(logits: Any) -> np.ndarray:
    # In double precision, so that probabilities sum to one more exactly.
    doubles: np.ndarray = logits.cpu().numpy().astype(np.float64)
    return doubles
