"""The clock of the benchmark, with a clock that can be told the time."""

from __future__ import annotations

import pytest

from dropnode.bench.timing import Spread, Timings, alternate


class Clock:
    """A clock that only moves when an action takes its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def action(self, name: str, *seconds: float) -> tuple[str, object]:
        """An action whose calls take these times, the last of them from then on."""
        times = list(seconds)

        def act() -> None:
            self.calls.append(name)
            self.now += times.pop(0) if len(times) > 1 else times[0]

        return name, act


def turns(calls: list[str]) -> list[tuple[str, int]]:
    """Calls as runs of equal names."""
    found: list[tuple[str, int]] = []
    for name in calls:
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] + 1)
        else:
            found.append((name, 1))
    return found


def test_actions_take_turns_of_like_length() -> None:
    clock = Clock()
    actions = dict([clock.action("slow", 2.0), clock.action("quick", 0.05)])
    told: list[str] = []
    timings = alternate(
        actions,  # type: ignore[arg-type]
        rounds=3,
        burst=0.5,
        clock=clock,
        announce=told.append,
    )
    # Warm-up: one call that is not looked at, then enough to know how long one takes.
    warm_up, rounds = turns(clock.calls)[:2], turns(clock.calls)[2:]
    assert warm_up == [("slow", 2), ("quick", 4)]
    assert rounds == [("slow", 1), ("quick", 10)] * 3
    assert timings.bursts == {"slow": 1, "quick": 10}
    assert timings.seconds["slow"] == [2.0, 2.0, 2.0]
    assert timings.seconds["quick"] == pytest.approx([0.05] * 3)
    assert [line for line in told if "round" in line] == [f"round {k} of 3" for k in (1, 2, 3)]


def test_the_first_call_is_not_timed() -> None:
    """It compiles, and would make the burst too short and the median too long."""
    clock = Clock()
    actions = dict([clock.action("compiled", 60.0, 0.1)])
    timings = alternate(actions, rounds=2, burst=0.5, clock=clock)  # type: ignore[arg-type]
    assert timings.bursts["compiled"] == 5
    assert timings.time("compiled").median == pytest.approx(0.1)


def test_one_disturbed_round_moves_neither_median_nor_ratio() -> None:
    timings = Timings({"ours": [1.0, 1.0, 9.0, 1.0, 1.2], "naive": [10.0] * 5}, {})
    assert timings.time("ours").median == 1.0
    assert timings.time("ours").iqr == pytest.approx(0.2)
    assert timings.speedup("ours", "naive").median == 10.0


def test_ratios_are_taken_within_a_round() -> None:
    """A machine that slows down for all paths leaves their ratio as it was."""
    drift = [1.0, 2.0, 4.0, 8.0]
    timings = Timings({"ours": drift, "naive": [3 * seconds for seconds in drift]}, {})
    assert timings.speedup("ours", "naive") == Spread(3.0, 0.0)
    assert timings.speedup("naive", "ours").median == pytest.approx(1 / 3)


def test_median_and_interquartile_range() -> None:
    assert Spread.of([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(3.0, 2.0)
    assert Spread.of([7.0]) == Spread(7.0, 0.0)
