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


def container(folder: Path, prefix: str = "", **files: str) -> tuple[str, str, str, str]:
    """Write the files of a control group; return what the module knows about a group."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return str(folder), "memory.max", "memory.current", prefix


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = (str(tmp_path / "none"), "memory.max", "memory.current", "")
    free = container(tmp_path / "free", memory_max="max\n", memory_current="5\n")
    full = container(tmp_path / "full", memory_max="123456\n", memory_current="23456\n")
    monkeypatch.setattr(memory, "GROUPS", (free, missing))
    unlimited = memory.available_memory()
    assert unlimited is not None
    assert unlimited > 10**7
    monkeypatch.setattr(memory, "GROUPS", (free, full))
    assert memory.available_memory() == 100_000


@pytest.mark.parametrize("prefix", ["", "total_"])
def test_memory_that_holds_files_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    stat = "anon 7\ninactive_file 300\nactive_file 40\nunevictable 9\n"
    if prefix:
        stat += "total_inactive_file 300\ntotal_active_file 40\n"
    files = {"memory_max": "1000\n", "memory_current": "900\n", "memory_stat": stat}
    monkeypatch.setattr(memory, "GROUPS", (container(tmp_path / "group", prefix, **files),))
    assert memory.available_memory() == 440
    (tmp_path / "group" / "memory.current").write_text("5000\n")
    assert memory.available_memory() == 0


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
