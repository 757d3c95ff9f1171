"""Torch's optimisers without torch's compiler.

Torch wraps the methods of its optimisers for ``torch.compile``: each one imports ``torch._dynamo``
when it is first called. That takes as long as importing torch itself, and nothing here is ever
compiled. These classes call what is inside the wrappers. They compute bit-identical updates, and
their ``state_dict`` has the same layout.

``inspect.unwrap`` follows the ``__wrapped__`` that :func:`functools.wraps` leaves, and returns a
function that has none as it is. A torch that wraps less, or nothing, works the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer


class _Uncompiled(Optimizer):
    """The methods that all optimisers share; comes first among the bases of a class."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class Adam(_Uncompiled, torch.optim.Adam):
    """:class:`torch.optim.Adam` without the compiler."""

    # The wrapper also turns gradients off.
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class ClippedAdam(Adam):
    """Adam on gradients whose norm, over all parameters, is at most ``clip``; 0 for no limit."""

    def __init__(self, params: Iterable[Tensor], *, clip: float, **options: Any) -> None:
        super().__init__(params, **options)
        self.clip = clip

    def step(self, closure: Any = None) -> Any:
        """Clip the gradients and update the parameters."""
        if self.clip:
            clip_grad_norm_((p for group in self.param_groups for p in group["params"]), self.clip)
        return super().step(closure)


class RMSprop(_Uncompiled, torch.optim.RMSprop):
    """:class:`torch.optim.RMSprop` without the compiler."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.RMSprop.step))


class SGD(_Uncompiled, torch.optim.SGD):
    """:class:`torch.optim.SGD` without the compiler."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))
