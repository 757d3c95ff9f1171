"""Attacks: graphs with edges changed to mislead a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

KINDS: Mapping[str, str] = MappingProxyType(
    {"random": "random-edges", "metattack": "metattack", "prbcd": "prbcd"}
)
"""The transform of a reference that makes each kind of attack."""
