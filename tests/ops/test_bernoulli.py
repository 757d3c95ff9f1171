"""Flags from torch's global generator are torch's own, and the generator goes on as with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dropnode.ops import bernoulli
from dropnode.ops.kernels.mersenne import DIGITS, SIZE, draw_flags

COUNTS = [1, 5, SIZE // 2 - 1, SIZE // 2, SIZE // 2 + 1, 2000]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("probability", [0.4, 0.5, 1 / 3, 2.0**-53, 1.0 - 2.0**-53])
def test_flags_are_those_of_torch(count: int, probability: float) -> None:
    """Wherever the generator stands: freshly seeded, after an odd draw, at the end of its state."""
    for before in (0, 1, SIZE - 1, SIZE):
        drawn, following = [], []
        for draw in (bernoulli.fill, torch.Tensor.bernoulli_):
            torch.manual_seed(count)
            torch.rand(before)
            flags = torch.empty(count, dtype=torch.bool)
            draw(flags, probability)
            drawn.append(flags)
            following.append(torch.rand(7))
        assert torch.equal(*drawn)
        assert torch.equal(*following)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("position", [0, 1, SIZE - 1, SIZE])
def test_the_kernel_is_the_mersenne_twister_of_numpy(count: int, position: int) -> None:
    generator = np.random.MT19937(3)
    state = generator.state
    state["state"]["pos"] = position
    generator.state = state
    words = state["state"]["key"].astype(np.uint32)
    flags = np.empty(count, dtype=np.bool_)
    stop = draw_flags(words, position, np.uint64(0.3 * 2**DIGITS), flags)
    high, low = generator.random_raw(2 * count).reshape(-1, 2).T
    numbers = ((high << np.uint64(32)) | low) & np.uint64(2**DIGITS - 1)
    np.testing.assert_array_equal(flags, numbers < np.uint64(0.3 * 2**DIGITS))
    after = generator.state["state"]
    assert stop == after["pos"]
    np.testing.assert_array_equal(words, after["key"])


def test_torch_draws_where_it_draws_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bernoulli, "_alike", lambda: False)
    monkeypatch.setattr(bernoulli, "draw_flags", None)
    torch.manual_seed(1)
    flags, expected = torch.empty(2, 50, dtype=torch.bool)
    bernoulli.fill(flags, 0.3)
    torch.manual_seed(1)
    assert torch.equal(flags, expected.bernoulli_(0.3))


def test_another_way_of_drawing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bernoulli._alike.cache_clear()
    draw = bernoulli.draw_flags

    def otherwise(*arguments: object) -> int:
        stop: int = draw(*arguments)
        arguments[-1][-1] ^= True  # type: ignore[index]
        return stop

    monkeypatch.setattr(bernoulli, "draw_flags", otherwise)
    assert not bernoulli._alike()
    bernoulli._alike.cache_clear()
