"""A real disk that is full, at many sizes: one line, exit code 1, and nothing stored is lost."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SPEC = """
title: Two rows
datasets: [sbm]
seeds: 4
set: {max_epochs: 20, hidden: 8, order: 2}
rows:
  - {method: grand}
  - {method: grand-no-cr}
"""
SETTINGS = ["--set", "max_epochs=6", "--set", "hidden=8", "--set", "order=1"]
Resize = Callable[[str], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Resize]]:
    """A file system in memory, and a function that changes its size."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a file system can be mounted by root alone: {made.stderr.decode()}")

    def resize(size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", place], check=True)

    yield place, resize
    subprocess.run(["umount", place], check=True)


def dropnode(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dropnode", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"COLUMNS": "500"},
    )


def assert_told(ended: subprocess.CompletedProcess[str], place: Path) -> None:
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    line = ended.stderr.strip().splitlines()[-1]
    assert str(place) in line
    assert "space" in line or "disk" in line


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [[], ["--seeds", "2"]], ids=["one", "several"])
def test_a_run_on_a_small_disk(disk: tuple[Path, Resize], tmp_path: Path, seeds: list[str]) -> None:
    place, resize = disk
    command = ["train", "sbm", *SETTINGS, *seeds, "--checkpoint-every", "0", "--out"]
    assert dropnode(*command, tmp_path / "whole").returncode == 0
    for kilobytes in (32, 160) if seeds else (4, 32, 64, 100, 160, 240, 320):
        out = place / str(kilobytes)
        resize(f"{kilobytes}k")
        ended = dropnode(*command, out)
        if ended.returncode:
            assert_told(ended, place)
        resize("64m")
        resumed = dropnode(*command, out, "--resume")
        assert resumed.returncode == 0, resumed.stderr
        for path in (tmp_path / "whole").rglob("*.safetensors"):
            if path.name != "checkpoint.safetensors":
                same = out / path.relative_to(tmp_path / "whole")
                assert filecmp.cmp(same, path, shallow=False), kilobytes
        subprocess.run(["rm", "-r", out], check=True)


@pytest.mark.slow
def test_an_experiment_on_a_small_disk(disk: tuple[Path, Resize], tmp_path: Path) -> None:
    place, resize = disk
    spec = tmp_path / "rows.yaml"
    spec.write_text(SPEC)
    command = ["reproduce", spec, "--jobs", "1", "--out"]
    assert dropnode(*command, tmp_path / "whole").returncode == 0
    whole = dropnode("trials", tmp_path / "whole", "--json")
    failures = 0
    for kilobytes in (8, 80, 120, 160, 220, 300):
        out = place / str(kilobytes)
        resize(f"{kilobytes}k")
        ended = dropnode(*command, out)
        if ended.returncode:
            assert_told(ended, place)
            failures += 1
        resize("64m")
        resumed = dropnode(*command, out)
        assert resumed.returncode == 0, resumed.stderr
        assert accuracies(dropnode("trials", out, "--json")) == accuracies(whole)
        subprocess.run(["rm", "-r", out], check=True)
    assert failures > 2


def accuracies(listed: subprocess.CompletedProcess[str]) -> dict[str, float]:
    import json

    return {row["id"]: row["test_accuracy"] for row in json.loads(listed.stdout)["trials"]}
