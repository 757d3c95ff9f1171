"""What labels tell about a model: each is judged by models that were trained without it.

A model fits its own training labels, so these cannot say how good it is. The labels are therefore
divided into folds, and the labels of each fold are predicted by a model that is trained, validated
and stopped on the others. These held-out predictions show how often the model is right, how far its
confidence can be believed, and how many classes a node must be given so that the true one is among
them. The final model is trained on all labels: with few of them, none can be spared.
"""

from dropnode.assessment.held_out import HeldOut, Watch, hold_out
from dropnode.assessment.measures import measures, share_interval
from dropnode.assessment.picture import draw_held_out
from dropnode.assessment.trust import Trust

__all__ = [
    "HeldOut",
    "Trust",
    "Watch",
    "draw_held_out",
    "hold_out",
    "measures",
    "share_interval",
]
