"""The architecture: imports point up the list, and every package that is imported is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dropnode"

ORDER = """
errors memory files folders locks csv_text settings environment engines graph tables data ops
training methods analysis saving estimator model_selection assessment inspection table_model
experiments serve bench cli
""".split()
"""Modules and packages of dropnode; each may import those before it."""

METHODS = (
    "tensors presets base new_rows ensemble graph_attention grand grand_plus baselines table "
    "listing"
).split()
"""The same inside ``methods``."""


class Import(NamedTuple):
    """An import anywhere in a module: at its top, in a function, or for type checkers alone."""

    importer: str
    imported: str
    lazy: bool
    place: str


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, functions)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            # From a package, a name may be a module of it.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            yield Import(module_name(path), name, id(node) in inside, place)


EVERY = [each for path in sorted(SOURCE.rglob("*.py")) for each in imports_of(path)]


def test_every_module_has_a_place_in_the_order() -> None:
    units = {path.stem for path in SOURCE.glob("*.py")} | {
        path.parent.name for path in SOURCE.glob("*/__init__.py")
    }
    assert units - {"__init__", "__main__"} <= set(ORDER)
    parts = {path.stem for path in (SOURCE / "methods").glob("*.py")} | {
        path.parent.name for path in (SOURCE / "methods").glob("*/__init__.py")
    }
    assert parts - {"__init__"} <= set(METHODS)


@pytest.mark.parametrize(("package", "order"), [("dropnode", ORDER), ("dropnode.methods", METHODS)])
def test_imports_point_up_the_list_and_never_down(package: str, order: list[str]) -> None:
    """Lazy imports and those for type checkers count: a cycle is one however it is hidden."""
    depth = package.count(".") + 1
    rank = {name: place for place, name in enumerate(order)}
    wrong = []
    for each in EVERY:
        ends = [name.split(".") for name in (each.importer, each.imported)]
        if any(".".join(end[:depth]) != package or len(end) <= depth for end in ends):
            continue
        importer, imported = (end[depth] for end in ends)
        if rank.get(imported, -1) > rank.get(importer, len(order)):
            wrong.append(f"{each.place}: {each.importer} imports {each.imported}")
    assert wrong == []


def test_of_the_whole_package_its_version_alone_is_imported_from_within() -> None:
    """The public names of ``dropnode`` are for users; a module of it imports where they live."""
    for each in EVERY:
        head, _, name = each.imported.partition(".")
        if head == "dropnode" and name.partition(".")[0] not in {*ORDER, ""}:
            assert name == "__version__", each.place
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dropnode":
                assert node.attr == "__version__", f"{path}:{node.lineno}"


def declared() -> tuple[set[str], set[str]]:
    """Return the distributions that every user gets, and those of the extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = set(map(normalised, project["dependencies"]))
    optional = {
        normalised(each)
        for name, those in extras.items()
        if name not in ("dev", "docs")
        for each in those
    }
    return needed, optional


def normalised(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement).group()).lower()  # type: ignore[union-attr]


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    needed, optional = declared()
    homes = packages_distributions()
    used: set[str] = set()
    for each in EVERY:
        package = each.imported.partition(".")[0]
        if package == "dropnode" or package in sys.stdlib_module_names:
            continue
        assert package in homes, f"{each.place}: {package} is not installed"
        names = set(map(normalised, homes[package]))
        used |= names
        if names & needed:
            continue
        assert names & optional, f"{each.place}: {package} is not declared in pyproject.toml"
        assert each.lazy, f"{each.place}: {package} is optional; import it where it is used"
    assert needed | optional <= used, "declared, but never imported"


def test_every_declared_package_is_pinned() -> None:
    pinned = {
        normalised(line)
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [
        normalised(each)
        for those in (project["dependencies"], *project["optional-dependencies"].values())
        for each in those
    ]
    assert set(named) - {"dropnode"} <= pinned
