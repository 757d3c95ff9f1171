"""Random streams stay as they are, as long as the revisions of the methods do."""

from __future__ import annotations

import copy
import json

import pytest

from golden_streams import FILE, SHARED, addresses, not_raised

GOLDEN = json.loads(FILE.read_text())
REMEDY = (
    "stored results would no longer be reproduced; raise the revision of every method that draws "
    "from the stream, then run python tests/golden_streams.py"
)


@pytest.mark.parametrize("name", SHARED)
def test_shared_streams_have_not_changed(name: str) -> None:
    assert SHARED[name]() == GOLDEN[name], REMEDY


def test_every_method_draws_from_the_same_addresses() -> None:
    assert addresses() == GOLDEN["methods"], REMEDY


def test_the_file_is_not_renewed_unless_revisions_are_raised() -> None:
    now = copy.deepcopy(GOLDEN)
    assert not_raised(GOLDEN, now) == []
    now["methods"]["gcn"]["sha256"] = "other"
    assert not_raised(GOLDEN, now) == ["gcn"]
    now["methods"]["gcn"]["revision"] += 1
    assert not_raised(GOLDEN, now) == []
    now["generators"]["integer"] += 1
    assert not_raised(GOLDEN, now) == [name for name in GOLDEN["methods"] if name != "gcn"]
