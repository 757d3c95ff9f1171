"""``Config``, the base class of every configuration, and the strict reader of records.

Unknown keys, missing keys, wrong types and values out of range are errors, whether they come from
YAML, JSON, ``--set`` or Python, and so is a key that occurs twice in a file. A setting that is
silently ignored would lead to a wrong result. A number that cannot be meant is an error too: it
would run until somebody ends it. A configuration is a frozen dataclass whose fields define what
they accept::

    @dataclass(frozen=True)
    class Settings(Config):
        hidden: int = width()
        dropout: float = rate()
        stopping: str = choice("loss", "accuracy")

:func:`read_record` reads any other dataclass. An error names the place of the value, such as
``cora.expected.nodes``. Fields may have the types ``bool``, ``int``, ``float``, ``str``, ``Any``,
enums, literals, dataclasses, tuples, lists and mappings of these, and unions, such as
``int | None``.
"""

from dropnode.settings.config import Config
from dropnode.settings.fields import (
    MOST,
    MOST_REPEATS,
    MOST_SEED,
    MOST_UNITS,
    choice,
    count,
    flag,
    key_of,
    positive,
    rate,
    repeats,
    seed,
    share,
    temperature,
    weight,
    width,
)
from dropnode.settings.messages import continued, shown, suggestion
from dropnode.settings.records import check_keys, read_record, read_value
from dropnode.settings.texts import (
    MOST_YAML,
    parse_json,
    read_changes,
    read_json,
    read_sealed,
    read_yaml,
    yaml_text,
)

__all__ = [
    "MOST",
    "MOST_REPEATS",
    "MOST_SEED",
    "MOST_UNITS",
    "MOST_YAML",
    "Config",
    "check_keys",
    "choice",
    "continued",
    "count",
    "flag",
    "key_of",
    "parse_json",
    "positive",
    "rate",
    "read_changes",
    "read_json",
    "read_record",
    "read_sealed",
    "read_value",
    "read_yaml",
    "repeats",
    "seed",
    "share",
    "shown",
    "suggestion",
    "temperature",
    "weight",
    "width",
    "yaml_text",
]
