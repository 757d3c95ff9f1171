"""YAML, JSON and ``--set``: what is read, and what is refused before it takes long."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from dropnode.errors import ConfigError
from dropnode.settings import read_changes, read_json, read_yaml


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


def test_a_number_of_too_many_digits_stays_text() -> None:
    """Which the configuration refuses."""
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


def test_set_takes_the_keys_of_a_file(tmp_path: Path) -> None:
    """Later options count more, as always."""
    (tmp_path / "best.yaml").write_text("# a comment\norder: 4\nhead: gcn\n")
    best = f"@{tmp_path / 'best.yaml'}"
    assert read_changes([best]) == {"order": 4, "head": "gcn"}
    assert read_changes(["order=2", best, "head=gat"]) == {"order": 4, "head": "gat"}
    for content, told in (("[1, 2]", "expected keys and values"), ("a: [", "cannot be read")):
        (tmp_path / "best.yaml").write_text(content)
        with pytest.raises(ConfigError, match=told):
            read_changes([best])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_changes([f"@{tmp_path}"])
