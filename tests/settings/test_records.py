"""The strict reader of records: what it takes, and what it says to everything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

from dropnode.errors import ConfigError
from dropnode.settings import (
    Config,
    check_keys,
    choice,
    count,
    rate,
    read_record,
    read_value,
    share,
)


@dataclass(frozen=True)
class Layer(Config):
    width: int = count()
    dropout: float = rate(default=0.0)


@dataclass(frozen=True)
class Record:
    name: str
    layers: tuple[Layer, ...]
    seeds: Mapping[str, int] = field(default_factory=dict)
    split: Layer | Literal["public"] = "public"
    limit: int | None = None
    kind: str = choice("small", "large", default="small")
    shares: tuple[float, ...] = share(default=())
    anything: Any = None


WHOLE: dict[str, Any] = {
    "name": "one",
    "layers": [{"width": 3}, {"width": 4, "dropout": 0.5}],
    "seeds": {"cora": 2},
    "split": {"width": 1},
    "limit": 7,
    "kind": "large",
    "shares": [0, 0.5],
    "anything": [{"x": None}],
}


def test_a_record_is_read_to_its_depth() -> None:
    read = read_record(Record, WHOLE, "here")
    assert read == Record(
        "one",
        (Layer(3), Layer(4, 0.5)),
        {"cora": 2},
        Layer(1),
        7,
        "large",
        (0.0, 0.5),
        [{"x": None}],
    )
    assert all(type(number) is float for number in read.shares)
    small = read_record(Record, {"name": "two", "layers": [Layer(3)]}, "here")
    assert (small.seeds, small.split, small.limit, small.shares) == ({}, "public", None, ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nmae": 1}, "unknown key 'nmae' in here; did you mean 'name'?"),
        ({"name": None}, "here.name = None; expected a word"),
        ({"layers": 3}, "here.layers = 3; expected a list, each the keys width, dropout"),
        (
            {"layers": []},
            "here.layers = (); expected a list, each the keys width, dropout, at least one",
        ),
        ({"layers": [{}]}, "here.layers[0] lacks width; give every key without a default"),
        (
            {"layers": [{"width": 1}, {"widht": 1}]},
            "unknown key 'widht' in here.layers[1]; did you mean 'width'?",
        ),
        (
            {"layers": [{"width": 0}]},
            "here.layers[0].width = 0; expected a whole number of at least 1",
        ),
        ({"seeds": [1]}, "here.seeds = [1]; expected keys and values"),
        ({"seeds": {"cora": "2"}}, "here.seeds['cora'] = '2'; expected a whole number"),
        ({"seeds": {4: 2}}, "a key of here.seeds = 4; expected a word"),
        (
            {"split": "publik"},
            "here.split = 'publik'; expected the keys width, dropout or 'public'",
        ),
        ({"split": {"width": True}}, "here.split.width = True; expected a whole number"),
        ({"limit": 2.5}, "here.limit = 2.5; expected a whole number"),
        ({"kind": "tiny"}, "here.kind = 'tiny'; expected one of small, large"),
        ({"shares": [0.5, 1.5]}, "here.shares = (0.5, 1.5); expected from 0 to 1"),
        ({"shares": [0.5, float("nan")]}, "here.shares[1] = nan; expected a number"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_record(Record, WHOLE | change, "here")
    assert str(caught.value) == message


def test_every_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match="here lacks name, layers; give every key"):
        read_record(Record, {"limit": 3}, "here")
    with pytest.raises(ConfigError, match=r"here = \[\]; expected the keys name, layers, seeds"):
        read_record(Record, [], "here")


class Colour(StrEnum):
    RED = "red"
    GREEN = "light green"


@dataclass(frozen=True)
class Painted:
    """A record that a file has in another form."""

    layer: Layer = field(metadata={"flat": True})
    colour: Colour
    others: tuple[Colour, ...] = field(metadata={"key": "more", "empty": None})


PAINTED: dict[str, Any] = {"width": 3, "colour": "light green", "more": ["red", "red"]}


def test_a_file_may_have_a_record_in_another_form() -> None:
    read = read_record(Painted, PAINTED, "here")
    assert read == Painted(Layer(3), Colour.GREEN, (Colour.RED, Colour.RED))
    assert type(read.colour) is Colour
    assert read_record(Painted, PAINTED | {"more": None}, "here").others == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widht": 1}, "unknown key 'widht' in here; did you mean 'width'?"),
        ({"layer": {"width": 3}}, "unknown key 'layer' in here; "),
        ({"others": []}, "unknown key 'others' in here; "),
        ({"width": 0}, "here.width = 0; expected a whole number of at least 1"),
        ({"colour": "blue"}, "here.colour = 'blue'; expected one of red, light green"),
        ({"colour": []}, "here.colour = []; expected one of red, light green"),
        ({"more": []}, "here.more = (); expected a list, each one of red, light green, at least"),
        ({"more": ["red", 1]}, "here.more[1] = 1; expected one of red, light green"),
        ({"colour": "x" * 99}, f"here.colour = '{'x' * 58}…; expected one of"),
    ],
)
def test_the_place_of_an_error_is_that_in_the_file(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_record(Painted, PAINTED | change, "here")
    assert str(caught.value).startswith(message)


def test_missing_keys_are_those_of_the_file() -> None:
    with pytest.raises(ConfigError, match="here lacks width, colour, more; give every key"):
        read_record(Painted, {}, "here")


def test_a_single_value_can_be_read() -> None:
    assert read_value(list[str], ("a",), "names") == ["a"]
    assert read_value(dict[str, float], {"a": 1}, "figures") == {"a": 1.0}
    with pytest.raises(ConfigError, match="seeds = True; expected a whole number"):
        read_value(int, True, "seeds", count())


def test_keys_can_be_checked_alone() -> None:
    check_keys({"a": 1}, ["a"], ["b"], "a row")
    with pytest.raises(ConfigError, match="unknown key 'c' in a row; expected one of a, b"):
        check_keys({"a": 1, "c": 1}, ["a"], ["b"], "a row")
    with pytest.raises(ConfigError, match="a row lacks a"):
        check_keys({"b": 1}, ["a"], ["b"], "a row")
