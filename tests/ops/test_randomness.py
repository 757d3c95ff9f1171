"""Streams are addresses; masks have exactly the rate that was asked for."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
import torch

from dropnode.ops.randomness import Dropout, Part, Stream, keep_mask

# A correct generator misses this many standard deviations once in 150,000 draws of a seed.
SIGMAS = 4.5

RATES = [0.5, 0.3, 0.123, 0.999, 0.001, 0.6, 0.8, 1 / 3]


def test_an_address_gives_the_same_bits_however_it_is_reached() -> None:
    whole = Stream(3).at("phase", 0, "epoch", 12)
    by_steps = Stream(3).at("phase").at(0).at("epoch", 12)
    for stream in (whole, by_steps, Stream(3).at("phase", 0).at("epoch", 12)):
        assert stream.generator().bytes(64) == whole.generator().bytes(64)
        assert stream.integer() == whole.integer()


def test_every_part_of_an_address_matters() -> None:
    base = Stream(0)
    streams = [
        base,
        Stream(1),
        Stream(2**32),
        base.at("epoch"),
        base.at("epoch", 0),
        base.at("epoch", 0, 0),
        base.at("epoch", 1),
        base.at("batch", 1),
        base.at(1, "epoch"),
        base.at(0),
        *(base.at("epoch", e).at("augmentation", s) for e in range(2, 20) for s in range(4)),
    ]
    assert len({stream.generator().bytes(16) for stream in streams}) == len(streams)
    assert len({stream.integer() for stream in streams}) == len(streams)


def test_reading_one_stream_moves_no_other() -> None:
    stream = Stream(5).at("mask")
    before = keep_mask(stream, (50,), 0.4)
    Stream(5).at("other").generator().random(1000)
    stream.generator().random(1000)
    np.testing.assert_array_equal(keep_mask(stream, (50,), 0.4), before)


@pytest.mark.parametrize("seed", [-1, 2**128, 1.9, "1", None])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match=f"seed is {seed!r}; expected a whole number, from 0 to"):
        Stream(seed)


def test_any_kind_of_whole_number_is_a_seed() -> None:
    assert Stream(np.int64(7)).words(1) == Stream(7).words(1)  # type: ignore[arg-type]
    assert Stream(2**128 - 1).seed == 2**128 - 1


def test_integers_are_valid_seeds_for_torch() -> None:
    seeds = [Stream(0).at(i).integer() for i in range(200)]
    assert max(seeds) > 2**61
    assert all(0 <= seed < 2**63 for seed in seeds)
    torch.Generator().manual_seed(max(seeds))


@pytest.mark.parametrize("rate", RATES)
def test_the_rate_of_a_mask_is_exact(rate: float) -> None:
    # Large enough to see a rate that was rounded to whole bytes: 0.3 would become 77/256.
    size = 2**24
    kept = keep_mask(Stream(11).at("rate"), (size,), rate).mean()
    assert abs(kept - (1 - rate)) < SIGMAS * np.sqrt(rate * (1 - rate) / size)


def test_nothing_is_dropped_at_rate_zero() -> None:
    assert keep_mask(Stream(0), (100_000,), 0.0).all()


@pytest.mark.parametrize("rate", RATES)
def test_the_entries_of_a_mask_are_independent(rate: float) -> None:
    size = 2**20
    centred = keep_mask(Stream(2).at("independent"), (size,), rate) - (1 - rate)
    bound = SIGMAS * rate * (1 - rate) / np.sqrt(size)
    for lag in (1, 2, 3, 7, 8, 32, 1024):
        assert abs(np.mean(centred[lag:] * centred[:-lag])) < bound * 1.01, lag


@pytest.mark.parametrize("rate", [0.3, 0.5])
def test_masks_of_neighbouring_addresses_are_independent(rate: float) -> None:
    size = 2**18
    stream = Stream(4)
    masks = [
        keep_mask(s, (size,), rate) - (1 - rate)
        for s in (
            stream.at("epoch", 1, "augmentation", 0),
            stream.at("epoch", 1, "augmentation", 1),
            stream.at("epoch", 2, "augmentation", 0),
            Stream(5).at("epoch", 1, "augmentation", 0),
        )
    ]
    bound = SIGMAS * rate * (1 - rate) / np.sqrt(size)
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert abs(np.mean(one * other)) < bound


def test_a_wider_mask_begins_with_the_narrower_one() -> None:
    """Up to a word, each row takes the same bits however many of them count."""
    wide = keep_mask(Stream(9), (5, 64), 0.37)
    for columns in (1, 12, 63):
        narrow = keep_mask(Stream(9), (5, columns), 0.37)
        np.testing.assert_array_equal(narrow, wide[:, :columns])


def test_dropout_of_several_views_is_the_dropout_of_each() -> None:
    streams = [Stream(1).at("augmentation", s) for s in range(4)]
    x = torch.randn(30, 4, 5, generator=torch.Generator().manual_seed(0))
    together = Dropout(streams)(x, 0.3, "hidden")
    for s, stream in enumerate(streams):
        assert torch.equal(Dropout([stream])(x[:, s], 0.3, "hidden"), together[:, s])
    assert torch.equal(Dropout(streams[:2])(x[:, :2], 0.3, "hidden"), together[:, :2])


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_dropout_of_a_part_is_that_of_the_whole(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    x = torch.randn(30, 70, generator=torch.Generator().manual_seed(0))
    whole = Dropout([Stream(1)])(x, 0.3, "hidden")
    for own in ([0, 1, 2, 17], [29], []):
        part = Part(np.array(own, dtype=np.int64), 30)
        assert torch.equal(Dropout([Stream(1)], part)(x[own], 0.3, "hidden"), whole[own])


def test_dropout_keeps_the_expectation() -> None:
    size, rate = 400_000, 0.3
    dropped = Dropout([Stream(0)])(torch.ones(size, 1), rate, "input")
    assert sorted(dropped.unique().tolist()) == pytest.approx([0.0, 1 / 0.7])
    spread = np.sqrt(rate / (1 - rate) / size)
    assert abs(dropped.mean().item() - 1.0) < SIGMAS * spread


def test_dropout_masks_differ_between_layers_and_its_gradient_is_the_mask() -> None:
    dropout = Dropout([Stream(0)])
    x = torch.ones(40, 6, requires_grad=True)
    first, second = dropout(x, 0.5, "input"), dropout(x, 0.5, "hidden")
    assert not torch.equal(first, second)
    first.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, first.detach())


@pytest.mark.parametrize("columns", [1, 7, 63, 64, 65, 130])
def test_dropout_in_kernels_has_the_bits_of_plain_torch(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.randn(9, 2 * columns, generator=torch.Generator().manual_seed(columns))
    whole[3] = torch.nan
    results = []
    for kernels in ("1", "0"):
        monkeypatch.setenv("DROPNODE_KERNELS", kernels)
        # Every other column, so that rows are not next to each other in memory.
        x = whole[:, ::2].detach().requires_grad_()
        out = Dropout([Stream(4)])(x, 0.3, "hidden")
        pull = torch.arange(1.0, out.numel() + 1).view(columns, 9).T
        results.append([out, *torch.autograd.grad(out, x, pull)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)


def test_dropout_at_rate_zero_is_no_work() -> None:
    x = torch.ones(3, 2)
    assert Dropout([Stream(0)])(x, 0.0, "input") is x


def test_torchs_generator_is_put_back_even_after_an_error() -> None:
    before = torch.random.get_rng_state()
    draws = []
    for _ in range(2):
        with Stream(3).at("layer").torch_global():
            draws.append(torch.rand(4))
    with pytest.raises(RuntimeError), Stream(3).torch_global():
        torch.rand(-1)
    assert torch.equal(draws[0], draws[1])
    with Stream(4).at("layer").torch_global():
        assert not torch.equal(torch.rand(4), draws[0])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_threads_take_turns_at_torchs_generator() -> None:
    """Four threads that draw at the same time get what each of them gets alone."""

    def draw(seed: int) -> list[torch.Tensor]:
        drawn = []
        for epoch in range(50):
            stream = Stream(seed).at("epoch", epoch)
            with stream.torch_global():
                drawn.append(torch.rand(3))
                # A chance for the others to come between.
                time.sleep(0)
                with stream.at("inner").torch_global():
                    drawn.append(torch.rand(2))
                drawn.append(torch.rand(3))
        return drawn

    before = torch.random.get_rng_state()
    alone = [draw(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as executor:
        together = list(executor.map(draw, range(4)))
    for ours, theirs in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_others_wait_until_a_block_is_over_even_if_it_fails() -> None:
    def draw() -> torch.Tensor:
        with Stream(0).torch_global():
            return torch.rand(3)

    def fail() -> None:
        with Stream(1).torch_global():
            others.append(executor.submit(draw))
            assert not wait(others, timeout=0.2).done
            raise KeyError

    others: list[Future[torch.Tensor]] = []
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(KeyError):
            fail()
        assert torch.equal(others[0].result(20), draw())
