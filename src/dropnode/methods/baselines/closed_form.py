"""Methods in closed form, which are fitted without epochs."""

from __future__ import annotations

from dataclasses import dataclass

from dropnode.methods.baselines.base import Baseline
from dropnode.ops.scaling import CHOICES
from dropnode.settings import Config, choice
from dropnode.training import Outcome, Phase

NEVER = -100.0
"""The logit of a class without training nodes: its probability is zero in float32, or nearly."""


@dataclass(frozen=True, kw_only=True)
class ClosedFormConfig(Config):
    """Settings of every method in closed form.

    Attributes
    ----------
    feature_scaling : how features are scaled, see :class:`dropnode.ops.scaling.FeatureScaling`
    """

    feature_scaling: str = choice(*CHOICES)


class ClosedForm(Baseline):
    """A method that ``prepare_training`` fits."""

    def phases(self) -> list[Phase]:
        """Return no phase."""
        return []

    def trained_as_long(self, outcome: Outcome) -> Config:
        """Return the configuration unchanged."""
        config: Config = self.config
        return config
