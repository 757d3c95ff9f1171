"""Controllers that propose architectures: a recurrent network that learns from rewards; chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import nn

from dropnode.methods.baselines.graphnas_space import DECISIONS, SPACE, Action, options
from dropnode.ops.kernels.threads import Threads, at_most
from dropnode.ops.randomness import Stream
from dropnode.settings import Config, positive, share, weight, width
from dropnode.training.optimiser import Adam

Memory = tuple[torch.Tensor, torch.Tensor]
"""Hidden and cell state of the recurrent network."""

ALONE = Threads(torch=1, kernels=1)
"""A step is too small to share, and so its bits depend on no number of threads."""


class Sampler(Protocol):
    """A controller: it proposes architectures, decision by decision, and receives their rewards."""

    def propose(self, stream: Stream) -> tuple[Action, ...]:
        """Return an action for each of the decisions, drawn by the stream."""
        ...

    def learn(self, decided: Sequence[Action], reward: float) -> None:
        """Take in the reward of a proposal."""
        ...


class RandomSampler:
    """Draws every action uniformly, and learns nothing."""

    def __init__(self, max_width: int) -> None:
        self.max_width = max_width

    def propose(self, stream: Stream) -> tuple[Action, ...]:
        """Return an action for each of the decisions."""
        generator = stream.generator()
        decided: list[Action] = []
        for _ in DECISIONS:
            allowed = options(decided, self.max_width)
            decided.append(allowed[generator.integers(len(allowed))])
        return tuple(decided)

    def learn(self, decided: Sequence[Action], reward: float) -> None:
        """Ignore the reward."""


@dataclass(frozen=True, kw_only=True)
class ControllerConfig(Config):
    """Settings of the controller; the defaults are its authors'.

    Their rate is slow: in the thousand samples of their search, an action that alone is rewarded
    goes from one in seven to one in five. With 0.01 it is nearly sure after a hundred.

    Attributes
    ----------
    hidden : width of the recurrent network
    temperature, tanh_constant : logits are c · tanh(z / T), so that no action dies out
    entropy_weight : how much the entropy of a decision adds to its reward
    baseline_decay : of the moving average that rewards are compared with
    learning_rate : of Adam
    """

    hidden: int = width(default=100)
    temperature: float = positive(default=5.0)
    tanh_constant: float = positive(default=2.5)
    entropy_weight: float = weight(default=1e-4)
    baseline_decay: float = share(default=0.95)
    learning_rate: float = positive(default=3.5e-4)


class Controller(nn.Module):
    """An LSTM that decides action by action, each knowing those before; trained by REINFORCE.

    Parameters
    ----------
    config : ControllerConfig
    max_width : int
        As in :func:`dropnode.methods.baselines.graphnas_space.options`.
    stream : Stream
        Draws the initial weights.
    """

    def __init__(self, config: ControllerConfig, max_width: int, stream: Stream) -> None:
        super().__init__()
        self.config, self.max_width = config, max_width
        with stream.torch_global():
            self.cell = nn.LSTMCell(config.hidden, config.hidden)
            self.embeddings = nn.ModuleDict(
                {name: nn.Embedding(len(SPACE[name]), config.hidden) for name in SPACE}
            )
            self.decoders = nn.ModuleDict(
                {name: nn.Linear(config.hidden, len(SPACE[name])) for name in SPACE}
            )
            for name, parameter in self.named_parameters():
                decoder_bias = name.startswith("decoders") and name.endswith("bias")
                nn.init.uniform_(parameter, -0.1, 0.1)
                if decoder_bias:
                    nn.init.zeros_(parameter)
        self.optimiser = Adam(self.parameters(), lr=config.learning_rate, fused=True)
        self.baseline: torch.Tensor | None = None

    @torch.no_grad()
    def propose(self, stream: Stream) -> tuple[Action, ...]:
        """Return an action for each of the decisions."""
        generator = stream.generator()
        decided: list[Action] = []
        memory = None
        with at_most(ALONE):
            for _ in DECISIONS:
                logarithms, memory = self.decide(decided, memory)
                ends = np.cumsum(logarithms.double().exp().numpy())
                place = np.searchsorted(ends, generator.random() * ends[-1], side="right")
                decided.append(options(decided, self.max_width)[place])
        return tuple(decided)

    def learn(self, decided: Sequence[Action], reward: float) -> None:
        """Make the decisions likelier if they earned more than usual, else less likely."""
        with at_most(ALONE):
            chosen, entropies = self.review(decided)
            rewards = reward + self.config.entropy_weight * entropies.detach()
            decay = self.config.baseline_decay
            if self.baseline is None:
                self.baseline = rewards
            self.baseline = torch.lerp(rewards, self.baseline, decay)
            loss = -(chosen * (rewards - self.baseline)).sum()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()

    def review(self, decided: Sequence[Action]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-probability of every decision, and the entropy of its distribution."""
        chosen, entropies = [], []
        memory = None
        for place, (name, action) in enumerate(zip(DECISIONS, decided, strict=True)):
            logarithms, memory = self.decide(decided[:place], memory)
            chosen.append(logarithms[SPACE[name].index(action)])
            entropies.append(-(logarithms.exp() * logarithms).sum())
        return torch.stack(chosen), torch.stack(entropies)

    def decide(
        self, decided: Sequence[Action], memory: Memory | None
    ) -> tuple[torch.Tensor, Memory]:
        """Return the log-probabilities of what may come next, and the network's new memory."""
        config, place = self.config, len(decided)
        heard = torch.zeros(1, config.hidden)
        if place:
            name = DECISIONS[place - 1]
            heard = self.embeddings[name](torch.tensor([SPACE[name].index(decided[-1])]))
        memory = self.cell(heard, memory)
        scores = self.decoders[DECISIONS[place]](memory[0])[0]
        logits = config.tanh_constant * torch.tanh(scores / config.temperature)
        # Numbers are in ascending order, so those that are too large come last.
        allowed = len(options(decided, self.max_width))
        return logits[:allowed].log_softmax(dim=0), memory
