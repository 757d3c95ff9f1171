"""SVG files of matplotlib as elements of a page: small, safe, and in the colours of the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from markupsafe import Markup

from dropnode.experiments.report.figure_style import INK, OURS, THEIRS

_ON_THE_PAGE = {INK: "currentColor", OURS: "var(--ours)", THEIRS: "var(--theirs)"}
"""Colours that become those of the page, so that figures follow its dark scheme."""


def inline_svg(svg: bytes, prefix: str, description: str) -> Markup:
    """Return an SVG file of matplotlib as an element of a page that has several.

    Identifiers get a prefix, because those of two figures would clash. Colours become those of the
    page. Screen readers read the description instead of the outlines. Parts without a visible
    effect are left out, which halves the size.
    """
    root = ElementTree.fromstring(svg)
    for element in list(root.iter()):
        element.tag = _local(element.tag)
        element.attrib = {_local(name): value for name, value in element.attrib.items()}
        element.text = element.tail = None
    _remove_invisible(root)
    references = re.findall(r'(?:url\(#|href="#)([^)"]+)', svg.decode("utf-8"))
    names = {name: f"{prefix}-{number}" for number, name in enumerate(dict.fromkeys(references))}
    _adapt(root, names, decimals=1)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": description}
    # The markup is safe: text from outside has become outlines, or an escaped attribute.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _remove_invisible(parent: ElementTree.Element) -> None:
    """Remove metadata and titles, empty groups, and groups that change nothing."""
    children: list[ElementTree.Element] = []
    for child in list(parent):
        parent.remove(child)
        # A style sheet inside a figure would apply to the whole page.
        if child.tag in ("metadata", "title", "style"):
            continue
        _remove_invisible(child)
        if child.tag == "g" and not child.attrib.keys() - {"id"}:
            children += child
        elif child.tag not in ("g", "defs") or len(child):
            children.append(child)
    parent.extend(children)


def _adapt(element: ElementTree.Element, names: Mapping[str, str], decimals: int) -> None:
    """Adapt the identifiers, colours and numbers of an element and of its children."""
    if element.attrib.get("id") not in names:
        element.attrib.pop("id", None)
    for name, value in element.attrib.items():
        if name == "id":
            value = names[value]
        elif name == "href":
            value = "#" + names[value.removeprefix("#")]
        elif name == "d":
            value = relative_path(value, decimals)
        elif name in ("x", "y"):
            value = _short(float(value), 2)
        elif name == "style":
            value = re.sub(r"([:;])\s+", r"\1", value)
            for colour, replacement in _ON_THE_PAGE.items():
                value = value.replace(colour.lower(), replacement)
        value = re.sub(r"translate\(([^)]*)\)", _translation, value)
        value = re.sub(r"url\(#([^)]*)\)", lambda found: f"url(#{names[found[1]]})", value)
        element.attrib[name] = value
    for child in element:
        # Definitions are the markers and letters, which are small.
        _adapt(child, names, 2 if element.tag == "defs" else decimals)


def _translation(found: re.Match[str]) -> str:
    return f"translate({' '.join(_short(float(number), 2) for number in found[1].split())})"


def relative_path(path: str, decimals: int) -> str:
    """Return a path of matplotlib with rounded, relative coordinates, which takes fewer bytes.

    Positions are rounded, not steps, so that errors do not add up.

    Examples
    --------
    >>> relative_path("M 42.58 173.88 L 43.77 174.95 L 44.89 173.61 z", 1)
    'm42.6 173.9l1.2 1.1 1.1-1.4z'
    """
    scale = 10**decimals
    here = start = (0, 0)
    text = before = ""
    for command, rest in re.findall(r"([MLQCz])([^MLQCz]*)", path):
        numbers = [round(scale * float(number)) for number in rest.split()]
        steps = ""
        for position, number in enumerate(numbers):
            step = _short((number - here[position % 2]) / scale, decimals)
            steps += f" {step}" if steps and step[0] != "-" else step
        if numbers:
            here = (numbers[-2], numbers[-1])
        if command == "M":
            start = here
        if command == "z":
            here = start
        if command == before == "L":
            text += steps if steps[0] == "-" else f" {steps}"
        else:
            text += command.lower() + steps
        before = command
    return text


def _short(number: float, decimals: int) -> str:
    """Return a rounded number without redundant zeros."""
    text = f"{number:.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{number:.0f}"
    text = text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
    return "0" if text in ("", "-0", "-") else text
