"""A configuration may be defined in any module, with annotations that are types or text."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from dropnode.errors import ConfigError

SETTINGS = """
from dataclasses import dataclass
from typing import Optional, Union
from dropnode.settings import Config, count

@dataclass(frozen=True)
class Settings(Config):
    hidden: int
    order: int | None = count(default=None)
    widths: tuple[int, ...] = (1, 2)
"""


@pytest.mark.parametrize("first", ["", "from __future__ import annotations"])
@pytest.mark.parametrize("union", ["int | None", "Optional[int]", "Union[int, None]"])
def test_annotations_may_be_types_or_text(
    union: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = types.ModuleType("made")
    monkeypatch.setitem(sys.modules, "made", made)
    exec(
        compile(first + SETTINGS.replace("int | None", union), "made", "exec", dont_inherit=True),
        made.__dict__,
    )
    assert made.Settings(3).as_dict() == {"hidden": 3, "order": None, "widths": [1, 2]}
    assert made.Settings(3, np.int64(4)).identity() == {"hidden": 3, "order": 4}
    with pytest.raises(ConfigError, match="order = 0; expected a whole number of at least 1"):
        made.Settings(3, order=0)
    with pytest.raises(ConfigError, match="order = 'x'; expected a whole number"):
        made.Settings(3, order="x")
    with pytest.raises(ConfigError, match="widths = 'x'; expected a list of whole numbers"):
        made.Settings(3, widths="x")
