"""Training: the Method contract, the one loop, early stopping, checkpoints and progress."""

from dropnode.training.loop import epochs, train
from dropnode.training.method import Callback, Method, Outcome, Phase, State
from dropnode.training.stopping import Stopping

__all__ = ["Callback", "Method", "Outcome", "Phase", "State", "Stopping", "epochs", "train"]
