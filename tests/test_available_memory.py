"""Work that needs more memory than there is, is refused before it begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dropnode import memory
from dropnode.data import load_dataset
from dropnode.errors import DataError, WorkError
from dropnode.methods.base import Sizes
from dropnode.methods.table import METHODS, make_method
from dropnode.training import train


def test_more_than_there_is_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * 10**9)
    memory.check_memory(2 * 10**9, "this", "less")
    told = "this needs at least 2.1 GB of memory, and 2.0 GB are available; less"
    with pytest.raises(DataError, match=told):
        memory.check_memory(2_100_000_000, "this", "less", DataError)


def test_a_system_that_does_not_tell_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.check_memory(10**30, "this", "less")


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited, free = tmp_path / "limited", tmp_path / "free"
    limited.write_text("123456\n")
    free.write_text("max\n")
    monkeypatch.setattr(memory, "GROUPS", (str(free), str(tmp_path / "none")))
    unlimited = memory.available_memory()
    assert unlimited is not None
    assert unlimited > 10**7
    monkeypatch.setattr(memory, "GROUPS", (str(free), str(limited)))
    assert memory.available_memory() == 123456


@pytest.mark.parametrize("changes", [{"hidden": 10**6}, {"hidden": 10**5, "augmentations": 500}])
def test_a_training_that_cannot_fit_is_refused(
    changes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)
    method = make_method("grand", None, changes=changes).method
    with pytest.raises(WorkError, match=r"training needs at least .* GB .*; lower hidden"):
        train(method, load_dataset("digits"))


@pytest.mark.parametrize("method", METHODS)
def test_what_is_usual_is_never_refused(method: str) -> None:
    """The estimate counts the hidden layer alone: on a million nodes it is some gigabytes."""
    made = make_method(method, None).method
    assert made.least_memory(Sizes(nodes=10**6, features=500, classes=10)) < 4 * 10**9


MEASURE = """
import sys
from dropnode.data import load_dataset
from dropnode.methods.base import Sizes
from dropnode.methods.table import make_method
from dropnode.training import train

def peak():
    # Not getrusage, which counts the process that started this one.
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))

graph = load_dataset("sbm", nodes=2000)
for hidden in (4, int(sys.argv[2])):
    changes = {"hidden": hidden, "max_epochs": 1}
    method = make_method(sys.argv[1], None, changes=changes).method
    train(method, graph)
    print(peak())
print(method.least_memory(Sizes(graph.num_nodes, graph.num_features, graph.num_classes)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak in /proc")
@pytest.mark.parametrize(
    ("method", "hidden", "share"),
    # Attention has a number for every edge and head too, which the estimate leaves out.
    [("grand", 16384, 0.5), ("grand-gcn", 8192, 0.1), ("gcn", 8192, 0.1), ("gat", 512, 0.02)],
)
def test_the_estimate_is_less_than_what_training_takes(
    method: str, hidden: int, share: float
) -> None:
    command = [sys.executable, "-c", MEASURE, method, str(hidden)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    small, large, estimate = map(int, printed.split())
    assert share * (large - small) < estimate < large - small
