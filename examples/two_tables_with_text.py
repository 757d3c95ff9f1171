"""Two CSV files with text: from files to predictions, and to rows that arrive later.

The nodes are the estimators of scikit-learn, as they are installed here. A node's text is what its
documentation says before the list of parameters, an edge is a "See Also" of that documentation,
and the label is the module that it belongs to, given for a few.

    python examples/two_tables_with_text.py
"""

from __future__ import annotations

import csv
import inspect
import re
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.utils.discovery import all_estimators

from dropnode import GrandClassifier, TableModel, read_tables

LABELS_PER_CLASS = 4


def documented() -> dict[str, tuple[str, str, list[str]]]:
    """Return the module, the text and the "See Also" of each estimator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = dict(all_estimators())
    found = {}
    for name, kind in kinds.items():
        about = inspect.getdoc(kind) or ""
        text = about.partition("Parameters\n---")[0]
        also = about.partition("See Also\n---")[2].partition("\n\n")[0]
        others = sorted({*re.findall(r"\w+", also)} & {*kinds} - {name})
        found[name] = kind.__module__.split(".")[1], " ".join(text.split()), others
    sizes = Counter(module for module, _, _ in found.values())
    return {name: row for name, row in found.items() if sizes[row[0]] >= 2 * LABELS_PER_CLASS}


def write_tables(rows: dict[str, tuple[str, str, list[str]]], folder: Path) -> dict[str, str]:
    """Write nodes.csv and edges.csv, and return the modules whose cell was left empty."""
    given: Counter[str] = Counter()
    hidden = {}
    with (folder / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["name", "about", "module"])
        for name, (module, text, _) in rows.items():
            given[module] += 1
            known = given[module] <= LABELS_PER_CLASS
            table.writerow([name, text, module if known else ""])
            if not known:
                hidden[name] = module
    with (folder / "edges.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["source", "target"])
        for name, (_, _, also) in rows.items():
            table.writerows((name, other) for other in also if other in rows)
    return hidden


def main() -> None:
    """Write the files, fill the empty cells, and classify a row that arrives later."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        hidden = write_tables(documented(), folder)
        # The same as: dropnode fit --nodes nodes.csv --edges edges.csv --id name --text about
        #              --label module --out model
        tables = read_tables(
            folder / "nodes.csv", folder / "edges.csv", id="name", text=["about"], label="module"
        )
        print(tables.graph)
        model = TableModel.fit(tables, GrandClassifier(random_state=0, max_epochs=60))
        predictions = model.predict()
        named = dict(zip(predictions.ids, predictions.predicted, strict=True))
        right = sum(named[name] == module for name, module in hidden.items())
        print(f"{right} of {len(hidden)} empty cells filled as scikit-learn has them")

        (folder / "new.csv").write_text(
            "name,about\nForest,A forest of randomized decision trees on samples of the data\n"
        )
        (folder / "new_edges.csv").write_text("source,target\nForest,BaggingClassifier\n")
        new = model.predict_new(folder / "new.csv", folder / "new_edges.csv")
        print(f"Forest: {new.predicted[0]}, {new.probabilities.max():.2f}")


if __name__ == "__main__":
    main()
