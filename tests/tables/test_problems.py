"""Problems are told together, of every kind some."""

from __future__ import annotations

import pytest

from dropnode.errors import TableError
from dropnode.tables.problems import LONGEST, MOST_TOLD, Problems


def lines_of(problems: Problems) -> list[str]:
    with pytest.raises(TableError) as caught:
        problems.check()
    return str(caught.value).splitlines()


def test_nothing_is_no_error() -> None:
    Problems().check()


def test_a_kind_with_many_does_not_hide_the_others() -> None:
    problems = Problems()
    problems.add_rows("a", "x", range(10**6), lambda at: f"wrong {at}")
    problems.add_rows("a", "y", [7, 8], lambda at: "odd")
    problems.add("b", "is empty")
    title, *lines = lines_of(problems)
    assert title == "1,000,003 problems:"
    assert len(lines) == MOST_TOLD + 1
    assert lines[:2] == ["  a, row 0, column x: wrong 0", "  a, row 1, column x: wrong 1"]
    assert lines[-4:] == [
        "  a, row 7, column y: odd",
        "  a, row 8, column y: odd",
        "  b is empty",
        "  and 999,983 more",
    ]


def test_a_hundred_kinds_are_cut() -> None:
    problems = Problems()
    for number in range(100):
        problems.add("a", f"has problem {number}")
    lines = lines_of(problems)
    assert len(lines) == 1 + MOST_TOLD + 1
    assert lines[-1] == "  and 80 more"


def test_long_and_broken_texts_are_one_short_line() -> None:
    problems = Problems()
    problems.add("a", "x\ny " * 1000, row=3)
    _, line = lines_of(problems)
    assert len(line.strip()) == LONGEST
    assert line.startswith("  a, row 3: x y x y")


def test_the_same_problem_is_told_once() -> None:
    problems = Problems()
    for _ in range(2):
        problems.add_rows("a", "x", [1, 2], lambda at: "wrong")
    assert len(problems) == 2
