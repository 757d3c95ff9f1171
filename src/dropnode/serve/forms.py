"""What requests send and what answers say, as plain records with limits and examples.

Pydantic reads the limits from the metadata of the fields, and OpenAPI shows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Name = str | int
"""An id: text, or a whole number, which is the same as its text."""

Cell = str | int | float | bool | None | list[str | int | float | None]
"""A cell of a table."""

STRICT = {"extra": "forbid"}
"""Pydantic's setting that refuses keys that nobody knows."""


@dataclass
class Label:
    """The class of a node, given by a person."""

    __pydantic_config__: ClassVar[Any] = STRICT
    id: Name = field(metadata={"description": "Id of a node.", "examples": ["p3"]})
    label: str | None = field(
        metadata={"description": "A class; null takes a label away.", "examples": ["Theory"]}
    )


@dataclass
class Labels:
    """Labels that are stored together, all or none."""

    __pydantic_config__: ClassVar[Any] = STRICT
    labels: list[Label] = field(metadata={"min_length": 1, "max_length": 1000})


@dataclass
class Edge:
    """An edge of a new node, to a node of the model or to another new node."""

    __pydantic_config__: ClassVar[Any] = STRICT
    source: Name
    target: Name
    weight: float | None = field(
        default=None, metadata={"gt": 0, "allow_inf_nan": False, "examples": [1.0]}
    )


@dataclass
class NewNodes:
    """Rows of the table of nodes, as in training, and their edges."""

    __pydantic_config__: ClassVar[Any] = STRICT
    nodes: list[dict[str, Cell]] = field(
        metadata={
            "description": "A cell for the id and for every column that the model knows; see "
            "id_column and columns of /model.",
            "min_length": 1,
            "max_length": 1000,
            "examples": [[{"id": "new-1", "title": "Graphs at random"}]],
        }
    )
    edges: list[Edge] = field(
        default_factory=list,
        metadata={"max_length": 20_000, "examples": [[{"source": "new-1", "target": "p3"}]]},
    )
    vectors: list[list[float]] | None = field(
        default=None,
        metadata={
            "description": "A vector per node, if the model was fitted with a file of vectors.",
            "max_length": 1000,
        },
    )


@dataclass
class Problem:
    """What is wrong with a request, and where."""

    field: str
    message: str


@dataclass
class Problems:
    """Why a request was refused."""

    problems: list[Problem]


@dataclass
class Health:
    """Whether the service answers."""

    status: Literal["ok"]
    version: str


@dataclass
class Row:
    """A node in a list; ``now`` is its label after what people gave since the training."""

    id: str
    predicted: str
    confidence: float
    label: str | None
    held_out: str | None
    log_odds: float | None
    now: str | None


@dataclass
class Page:
    """A part of a list of nodes."""

    total: int
    offset: int
    nodes: list[Row]


@dataclass
class Prediction:
    """The classes of a new node."""

    id: str
    predicted: str
    confidence: float
    probabilities: dict[str, float]
    set: list[str] | None


@dataclass
class Predicted:
    """The classes of new nodes, and what was repaired in their tables."""

    predictions: list[Prediction]
    notes: list[str]


@dataclass
class JournalEntry:
    """A label in the journal."""

    id: str
    label: str | None
    at: str


@dataclass
class JournalPage:
    """Labels that people gave and that the model was not trained on."""

    writable: bool
    entries: int
    waiting: list[JournalEntry]


@dataclass
class Status:
    """How far retraining is; with a candidate, how it compares."""

    state: Literal["idle", "running", "failed", "ready"]
    done: int
    of: int
    problem: str | None
    comparison: dict[str, Any] | None
