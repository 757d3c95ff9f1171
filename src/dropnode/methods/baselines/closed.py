"""Methods in closed form: ready once they are prepared, with no epoch to train."""

from __future__ import annotations

from dataclasses import dataclass

from dropnode.methods.baselines.base import Baseline
from dropnode.ops.scaling import KINDS
from dropnode.settings import Config, choice
from dropnode.training import Outcome, Phase


@dataclass(frozen=True, kw_only=True)
class ClosedFormConfig(Config):
    """What every method in closed form is told."""

    feature_scaling: str = choice(*KINDS)


class ClosedForm(Baseline):
    """A method whose ``prepare`` does everything."""

    def phases(self) -> list[Phase]:
        """Return no phase."""
        return []

    def trained_as_long(self, outcome: Outcome) -> Config:
        """Return the configuration as it is."""
        config: Config = self.config
        return config
