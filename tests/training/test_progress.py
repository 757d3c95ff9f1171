"""What a person sees while a run goes on."""

from __future__ import annotations

import io
import math

import pytest
import torch
from rich.console import Console

from dropnode.training import Outcome, Phase
from dropnode.training.progress import ProgressBar
from dropnode.training.stopping import Stopping


def phase(epochs: int = 50) -> Phase:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    return Phase("train", optimiser, epochs, Stopping("loss", 5))


def record(epoch: int, val_loss: float = 0.5) -> dict[str, float]:
    return {
        "epoch": float(epoch),
        "loss": 0.75,
        "supervised": 0.5,
        "consistency": 0.25,
        "val_loss": val_loss,
        "val_accuracy": 0.875,
    }


def shown(width: int, *records: dict[str, float]) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    outcome = Outcome()
    with ProgressBar("grand on digits", console) as bar:
        for line in records:
            outcome.history.append(line)
            bar.on_epoch(phase(), outcome)
    return screen.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_epoch_losses_accuracy_and_time_left(width: int) -> None:
    text = shown(width, record(1), record(2))
    assert "epoch 2/50  loss 0.500 + 0.250  val 0.500, 87.5 %" in text
    assert "left at most" in text, "the end of the line was cut off"
    assert ("grand on digits" in text) == (width == 120)


@pytest.mark.parametrize("title", ["grand on a[/x].npz", "grand on data[v2]/graph.npz"])
def test_a_title_is_shown_as_it_is(title: str) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    with ProgressBar(title, console) as bar:
        bar.on_epoch(phase(), Outcome([record(1)]))
    assert title in screen.getvalue()


def test_nothing_is_made_up_where_nothing_validates() -> None:
    text = shown(120, record(1, val_loss=math.nan))
    assert "val" not in text


def test_a_log_of_a_short_training_says_how_it_ended_if_asked_to() -> None:
    log = io.StringIO()
    with ProgressBar("grand on digits", Console(file=log, width=40), closing=True) as bar:
        for epoch in (1, 2):
            bar.on_epoch(phase(), Outcome([record(epoch)]))
    told = "grand on digits: epoch 2/50  loss 0.500 + 0.250  val 0.500, 87.5 %  done in 0:00"
    assert log.getvalue().splitlines() == [told]


def test_the_time_left_of_a_second_phase_is_that_of_its_own_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("dropnode.training.progress.time.monotonic", lambda: now[0])
    log = io.StringIO()
    first, second = phase(300), phase(50)
    with ProgressBar("gmnn on cora", Console(file=log, width=40)) as bar:
        for current, seconds, epochs in ((first, 100.0, range(1, 4)), (second, 1.0, range(1, 12))):
            for epoch in epochs:
                now[0] += seconds
                bar.on_epoch(current, Outcome([record(epoch)]))
    assert log.getvalue().splitlines()[-1].endswith("0:40 left at most")


def test_a_log_gets_whole_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("dropnode.training.progress.time.monotonic", lambda: now[0])
    log = io.StringIO()
    outcome = Outcome()
    with ProgressBar("grand on digits", Console(file=log, width=40)) as bar:
        for epoch in range(1, 31):
            now[0] += 1.0
            outcome.history.append(record(epoch))
            bar.on_epoch(phase(), outcome)
    lines = log.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == (
        "grand on digits: epoch 10/50  loss 0.500 + 0.250  val 0.500, 87.5 %  0:40 left at most"
    )
