"""The strict reader: what it takes, and what it says to everything else."""

from __future__ import annotations

import math
import sys
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from dropnode.errors import ConfigError
from dropnode.settings import (
    Config,
    check_keys,
    choice,
    count,
    rate,
    read_changes,
    read_json,
    read_record,
    read_value,
    read_yaml,
    repeats,
    seed,
    share,
    suggestion,
    width,
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


SETTINGS = """
from dataclasses import dataclass
from typing import Optional, Union
from dropnode.settings import Config, count

@dataclass(frozen=True)
class Settings(Config):
    hidden: int
    order: int | None = count(default=None)
    widths: tuple[int, ...] = (1, 2)
"""


@pytest.mark.parametrize("first", ["", "from __future__ import annotations"])
@pytest.mark.parametrize("union", ["int | None", "Optional[int]", "Union[int, None]"])
def test_annotations_may_be_types_or_text(
    union: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = types.ModuleType("made")
    monkeypatch.setitem(sys.modules, "made", made)
    exec(
        compile(first + SETTINGS.replace("int | None", union), "made", "exec", dont_inherit=True),
        made.__dict__,
    )
    assert made.Settings(3).as_dict() == {"hidden": 3, "order": None, "widths": [1, 2]}
    assert made.Settings(3, np.int64(4)).identity() == {"hidden": 3, "order": 4}
    with pytest.raises(ConfigError, match="order = 0; expected a whole number of at least 1"):
        made.Settings(3, order=0)
    with pytest.raises(ConfigError, match="order = 'x'; expected a whole number"):
        made.Settings(3, order="x")
    with pytest.raises(ConfigError, match="widths = 'x'; expected a list of whole numbers"):
        made.Settings(3, widths="x")


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "the key 'a' occurs twice"),
        ("a: {x: 1, x: 2}\n", "the key 'x' occurs twice"),
        ("a: [1\n", "not valid YAML"),
    ],
)
def test_yaml_that_is_wrong_is_an_error(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_yaml(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'{"a": 1, "b": {"x": 1, "x": 2}}', "the key 'x' occurs twice"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b'{"a": 1', "is not valid JSON"),
        (b'{"a": "\xff"}', "is not valid JSON"),
    ],
)
def test_json_that_is_wrong_is_an_error(tmp_path: Path, text: bytes, told: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=told) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"α": [1, 2.5, null]}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"α": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("-1", -1),
        ("1e-3", 0.001),
        ("True", True),
        ("false", False),
        ("4, 0,5", [4, 0, 5]),
        ("4,x", "4,x"),
        ("gat", "gat"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_a_setting_of_the_command_line_is_read(text: str, value: Any) -> None:
    changes = read_changes(["other=1", f" key = {text} "])
    assert changes == {"other": 1, "key": value}
    assert type(changes["key"]) is type(value)


@pytest.mark.parametrize("pair", ["key", "=3", "", " =1"])
def test_a_setting_without_a_key_or_a_sign_is_an_error(pair: str) -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        read_changes([pair])


def test_the_last_setting_of_a_key_counts() -> None:
    assert read_changes(["order=2", "head=gat", "order=3"]) == {"order": 3, "head": "gat"}


def test_a_suggestion_does_not_mind_capitals() -> None:
    assert suggestion("CORA", ["cora", "pubmed"]) == "; did you mean 'cora'?"
    assert suggestion("x", iter(["cora", "pubmed"])) == "; expected one of cora, pubmed"


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        (count(), 10**9 + 1, "x = 1000000001; expected at most 1,000,000,000"),
        (repeats(), 10**18, "x = 1000000000000000000; expected at most 1,000"),
        (repeats(least=0), 1e18, "x = 1000000000000000000; expected at most 1,000"),
        (width(), int("9" * 400), "…; expected at most 1,000,000"),
        pytest.param(width(), 10**5000, "x = <int>; expected at most 1,000,000", id="digits"),
        (seed(), 2**63, "expected at most 9,223,372,036,854,775,807"),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused_with_the_limit(
    field: Any, value: Any, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_value(int, value, "x", field)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_number_too_large_for_a_float_is_no_number() -> None:
    with pytest.raises(ConfigError, match="expected a number"):
        read_value(float, 10**400, "x")
    for text in ("9" * 5000, "9" * 5000 + ",1"):
        assert read_changes([f"x={text}"])["x"] in (text, math.inf)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x" * 1_000_001, "1,000,001 characters of YAML; expected at most 1,000,000"),
        ("\n".join(f"k{i}: 1" for i in range(40_000)), "more than 20,000 values"),
        ("[" * 60, "more than 50 levels"),
        ("a: &a [*a]", "an alias stands for what it is part of"),
        (
            "a0: [x]\nb0: &b0 [x]\n"
            + "".join(f"b{i + 1}: &b{i + 1} [{f'*b{i},' * 9}]\n" for i in range(9)),
            "more than 20,000 values",
        ),
        ("a: !!timestamp x", "the tag tag:yaml.org,2002:timestamp"),
        ("a: !!bool x", "the tag"),
        ("a: !!python/object:os.system x", "the tag"),
        ("? [a]\n: 1", "unhashable"),
    ],
)
def test_yaml_beyond_limits_is_refused_at_once(text: str, told: str) -> None:
    started = time.process_time()
    with pytest.raises(ConfigError, match=told):
        read_yaml(text)
    assert time.process_time() - started < 8


def test_aliases_are_read() -> None:
    assert read_yaml("a: &x [1, 2]\nb: *x\nc: {<<: {d: 3}, e: 4}") == {
        "a": [1, 2],
        "b": [1, 2],
        "c": {"d": 3, "e": 4},
    }


def test_json_nested_too_deeply_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="is not valid JSON"):
        read_json(tmp_path / "a.json")
