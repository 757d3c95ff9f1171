"""Optimisers without torch's compiler compute what torch's own do, bit by bit."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from dropnode.training import optimiser

CASES: list[tuple[str, dict[str, Any]]] = [
    ("Adam", {"lr": 0.01, "fused": True}),
    ("Adam", {"lr": 0.02, "weight_decay": 5e-4, "fused": True}),
    ("Adam", {"lr": 0.02, "weight_decay": 5e-4}),
    ("RMSprop", {"lr": 0.05, "weight_decay": 5e-4}),
    ("SGD", {"lr": 0.5, "weight_decay": 5e-4}),
]


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(5, 3, generator=generator)) for _ in range(2)]


def make(home: Any, name: str, options: dict[str, Any]) -> torch.optim.Optimizer:
    first, second = parameters()
    groups = [{"params": [first]}, {"params": [second], "weight_decay": 0.0}]
    made: torch.optim.Optimizer = getattr(home, name)(groups, **options)
    return made


def weights(optimiser: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def take_steps(optimiser: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        optimiser.zero_grad()
        loss = torch.stack([weight.sin().square().sum() for weight in weights(optimiser)]).sum()
        loss.backward()
        optimiser.step()


def assert_same(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer) -> None:
    for mine, other in zip(weights(ours), weights(theirs), strict=True):
        assert torch.equal(mine, other)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert mine["param_groups"] == other["param_groups"]
    assert mine["state"].keys() == other["state"].keys()
    for number, state in mine["state"].items():
        assert state.keys() == other["state"][number].keys()
        for key, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other["state"][number][key]))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps_and_state_are_torchs(name: str, options: dict[str, Any]) -> None:
    ours, theirs = make(optimiser, name, options), make(torch.optim, name, options)
    assert isinstance(ours, getattr(torch.optim, name))
    before = [weight.detach().clone() for weight in weights(ours)]
    for each in (ours, theirs):
        take_steps(each, 7)
    assert not any(torch.equal(a, b) for a, b in zip(weights(ours), before, strict=True))
    assert_same(ours, theirs)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_checkpoint_of_one_goes_on_in_the_other(name: str, options: dict[str, Any]) -> None:
    for first, second in ((optimiser, torch.optim), (torch.optim, optimiser)):
        before, after = make(first, name, options), make(second, name, options)
        take_steps(before, 3)
        with torch.no_grad():
            for old, new in zip(weights(before), weights(after), strict=True):
                new.copy_(old)
        # A copy, as from a file: torch goes on with the tensors that it is given.
        after.load_state_dict(deepcopy(before.state_dict()))
        take_steps(before, 4)
        take_steps(after, 4)
        assert_same(before, after)


@pytest.mark.parametrize("clip", [0.0, 0.5, 1e6])
def test_clipped_steps_are_torchs_on_gradients_that_torch_clips(clip: float) -> None:
    options = {"lr": 0.02, "weight_decay": 5e-4, "fused": True}
    ours = optimiser.ClippedAdam(parameters(), clip=clip, **options)
    theirs = torch.optim.Adam(parameters(), **options)
    norms = []
    for _ in range(5):
        for each in (ours, theirs):
            each.zero_grad()
            torch.stack([weight.sin().square().sum() for weight in weights(each)]).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(weights(theirs), clip or torch.inf)
        norms.append(norm.item())
        ours.step()
        theirs.step()
    assert_same(ours, theirs)
    assert min(norms) > 0.5, "the middle one is clipped"
