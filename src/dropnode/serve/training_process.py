"""The process that trains a candidate; the service starts it and reads its lines.

Run as ``python -m dropnode.serve.training_process MODEL OUT``, with the labels as JSON on the first
line of stdin. It prints lines of JSON: ``{"done": 1, "of": 6}`` and, if the work fails,
``{"problem": "..."}``. It ends when stdin is closed, so that it does not outlive the service.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from pathlib import Path

from dropnode.errors import DropnodeError


def retrain(model: Path, out: Path, labels: dict[str, str | None]) -> None:
    """Train a model again with further labels, and save it to a new folder.

    Parameters
    ----------
    model : Path
        The folder of the model, whose graph, encoders and parameters are used.
    out : Path
    labels : dict
        The class of some nodes, by id; None takes a label away.
    """
    # Imported late, because this takes seconds, in which the service may already have ended.
    from sklearn.base import clone

    from dropnode.graph.labels import UNKNOWN
    from dropnode.table_model import TableModel
    from dropnode.tables import Tables

    before = TableModel.load(model)
    graph = before.classifier.graph_
    position = {str(name): at for at, name in enumerate(graph.ids.tolist())}
    codes = graph.labels.copy()
    for name, label in labels.items():
        codes[position[name]] = UNKNOWN if label is None else graph.class_names.index(label)
    again = graph.with_labels(codes, graph.class_names).with_split(None)
    tables = Tables(again, before.encoders, (), ())
    classifier = clone(before.classifier).set_params(
        verbose=False, random_state=before.classifier.seed_
    )
    _tell(done=0, of=0)
    fitted = TableModel.fit(tables, classifier, watch=lambda done, of: _tell(done=done, of=of))
    fitted.save(out)


def _tell(**values: object) -> None:
    print(json.dumps(values), flush=True)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> int:
    """Train as the command line and stdin say; return the exit code."""
    model, out = map(Path, sys.argv[1:])
    labels = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Requests come first.
    if hasattr(os, "nice"):
        os.nice(10)
    warnings.simplefilter("ignore", UserWarning)
    try:
        retrain(model, out, labels)
    except DropnodeError as error:
        # Whoever asks the service learns the names of its folders, not where they are.
        _tell(problem=str(error).replace(f"{model.parent}{os.sep}", ""))
        return 1
    except OSError as error:
        _tell(problem=f"the candidate cannot be stored: {error.strerror}")
        return 1
    except MemoryError:
        _tell(problem="there is not enough memory to train this model")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
