"""The errors that a caller can cause, under one base class, and the warnings.

Every message says what was received, what was expected, and what to do. Any other exception is a
bug of ours and keeps its traceback. The command line exits with an error's ``exit_code``.
"""

from __future__ import annotations

import sys
import warnings


class DropnodeError(Exception):
    """Base class of the errors that a caller can correct: the call or the input was wrong."""

    exit_code = 2
    """The exit code of the command line."""

    several_lines = False
    """Whether the message is a list, of which the command line keeps the lines."""


class GraphError(DropnodeError, ValueError):
    """Input that cannot become a graph; the message names the cause and the remedy."""


class TableError(GraphError):
    """Files of nodes and edges with problems; the message lists them, a line each."""

    several_lines = True


class ConfigError(DropnodeError, ValueError):
    """An invalid call or configuration; the message says what would be accepted."""


class WorkError(DropnodeError, RuntimeError):
    """Base class of failures of the work itself, although the call was correct."""

    exit_code = 1


class DataError(WorkError):
    """A dataset that cannot be obtained, read or trusted; the message says why and what to do."""


class TrainingError(WorkError):
    """Training that cannot continue; the message says what to change."""


class CheckpointError(WorkError):
    """A checkpoint that cannot be used; the message says what to do."""


class ModelError(WorkError):
    """A model that cannot be saved or loaded; the message names the file and the remedy."""


class StoreError(WorkError):
    """A store of trials that cannot be read or written; the message says what to do."""


class GraphWarning(UserWarning):
    """Something in the input was repaired; the graph's ``notes`` have the same sentence."""


def warn_caller(message: str) -> None:
    """Warn with a :class:`GraphWarning` that names the first line outside of the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "dropnode":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, GraphWarning, stacklevel=level)
