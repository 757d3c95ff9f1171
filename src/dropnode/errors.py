"""Everything that a caller can cause, under one base class.

The message of each says what was received, what was expected, and what to do. Anything else that is
raised is a bug of ours, and keeps its traceback.
"""

from __future__ import annotations


class DropnodeError(Exception):
    """A failure that the caller can mend."""

    exit_code = 2
    """What the command line ends with."""


class GraphError(DropnodeError, ValueError):
    """Input that cannot become a graph; the message names the culprit and the cure."""


class ConfigError(DropnodeError, ValueError):
    """A call or a configuration that is invalid; the message says what would be accepted."""


class WorkError(DropnodeError, RuntimeError):
    """Work that failed although the call was right."""

    exit_code = 1


class DataError(WorkError):
    """A dataset cannot be obtained, read or trusted; the message says why and what to do."""


class TrainingError(WorkError):
    """Training that cannot go on; the message says what to change."""


class CheckpointError(WorkError):
    """A checkpoint that cannot be used; the message says what to do."""


class ModelError(WorkError):
    """A model that cannot be saved or loaded; the message names the file and the cure."""


class StoreError(WorkError):
    """A store of trials that cannot be read or written; the message says what to do."""


class GraphWarning(UserWarning):
    """Something in the input was repaired; the graph's ``notes`` keep the same sentence."""
