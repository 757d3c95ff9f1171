"""Team: processes that train one model together, and sum what each of them has computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Team:
    """One member's view of its team. The members of a team call its methods in the same order.

    Attributes
    ----------
    rank : int
        The number of this member; the first one is 0.
    size : int
        How many members there are. With more than one, torch's default process group joins them.
    device : str
        Where the tensors of this member are.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    def share(self, count: int) -> slice:
        """Return which of ``count`` items are this member's; the sizes of shares differ by one.

        Examples
        --------
        >>> [Team(rank, 3).share(4) for rank in range(3)]
        [slice(0, 1, None), slice(1, 2, None), slice(2, 4, None)]
        """
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def total(self, part: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all members; gradients flow to the parts of all."""
        if self.size == 1:
            return part
        total: torch.Tensor = _Total.apply(part)
        return total

    def add_up(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replace tensors by their sums over all members, in one message."""
        if self.size == 1:
            return
        tensors = list(tensors)
        joined = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(joined)
        pieces = joined.split([tensor.numel() for tensor in tensors])
        for tensor, piece in zip(tensors, pieces, strict=True):
            tensor.copy_(piece.view_as(tensor))

    def of_first(self, numbers: list[float]) -> list[float]:
        """Return the first member's numbers, which are as many as those given here."""
        if self.size == 1:
            return numbers
        sent = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.broadcast(sent, 0)
        return sent.tolist()


ALONE = Team()
"""The team of a process that trains alone."""


class _Total(torch.autograd.Function):
    """A sum over all members. Each adds its own loss, so its gradient is a sum over them too."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor) -> torch.Tensor:
        total = part.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total
