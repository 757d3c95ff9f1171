"""How a preset is chosen from a method's table of presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dropnode.errors import ConfigError
from dropnode.settings import suggestion

DEFAULT = "default"
"""The preset for a graph that has none of its own."""

OFFICIAL = "official"
"""The preset with what a method's authors chose."""

TUNED = "tuned"
"""The preset with what validation has chosen."""


def chosen_values(
    method: str, table: Mapping[str, Any], name: str | None, dataset: str | None
) -> tuple[str, dict[str, Any]]:
    """Return a preset's name and values for a dataset of the catalogue, or for None.

    Without a name: ``official``, the authors' choice, if they used the dataset; else ``default``.
    ``tuned`` is ``default`` with the settings that validation chose for a dataset.
    """
    if name is None:
        name = OFFICIAL if dataset in table[OFFICIAL] else DEFAULT
    if name not in table:
        raise ConfigError(f"{method} has no preset {name!r}{suggestion(name, table)}")
    if name != DEFAULT and dataset not in table[name]:
        raise ConfigError(
            f"preset {name!r} of {method} exists for the datasets {', '.join(table[name])}, "
            f"not for {dataset or 'a graph outside the catalogue'}; use preset {DEFAULT!r}"
        )
    values = table[DEFAULT] if name == DEFAULT else table[name][dataset]
    return name, table[DEFAULT] | values if name == TUNED else dict(values)
