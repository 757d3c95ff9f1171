"""The table of the paper's claims, made from the stored results when the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dropnode.experiments.measures import MEASURES
from dropnode.experiments.results import ClaimResult, Results, Verdict, read_results
from dropnode.experiments.spec_file import load_spec
from dropnode.experiments.writers import claim_datasets, claimed

RESULTS = Path(__file__).parents[2] / "results"

SECTIONS = {
    "table1": "Table 1: all methods",
    "table1-grand": "Table 1: variants and ablations",
    "generalization": "Generalization analysis",
    "robustness-random": "Robustness: random attack",
    "robustness-metattack": "Robustness: Metattack",
    "oversmoothing": "Over-smoothing, and GRAND with GCN and GAT",
    "large": "Appendix: larger graphs",
    "efficiency": "Appendix: efficiency",
    "sensitivity": "Appendix: parameter sensitivity",
    "dropnode-vs-dropout": "Appendix: DropNode and dropout",
    "label-rates": "Appendix: label rates",
}
"""The experiments with claims of the paper, in the paper's order."""


def claims() -> Iterator[str]:
    """Every claim of the paper's experiments, with what came out."""
    for name, title in SECTIONS.items():
        yield f"## {title}\n\n`dropnode reproduce {name}`\n"
        stored = RESULTS / name / "results.json"
        if not stored.exists():
            yield "Not run yet. The claims that it will test:\n"
            yield "\n".join(f"- {text}" for text in dict.fromkeys(_texts(name))) + "\n"
            continue
        yield "| claim | where | paper | ours (95 % interval) | n | verdict |"
        yield "|---|---|---|---|---|---|"
        yield from _lines(name, read_results(stored))
        yield ""


def _texts(name: str) -> Iterator[str]:
    return (claim.claim for claim in load_spec(name).claims)


def _lines(name: str, results: Results) -> Iterator[str]:
    """One line per claim and dataset; claims that agree about several graphs share a line."""
    labels = {row.method: row.label for row in results.rows}
    # table1 includes table1-grand, whose claims have a section of their own.
    elsewhere = set(_texts("table1-grand")) if name == "table1" else set()
    tests: dict[tuple[str, str], list[ClaimResult]] = {}
    for claim in results.claims:
        if claim.claim not in elsewhere:
            tests.setdefault((claim.claim, claim_datasets(claim)), []).append(claim)
    lines: dict[tuple[str, str, str], list[ClaimResult]] = {}
    for (text, where), group in tests.items():
        closest = min(group, key=_margin)
        verdict = str(closest.verdict)
        if len(group) > 1:
            confirmed = sum(one.verdict == Verdict.CONFIRMED for one in group)
            verdict = f"{confirmed} of {len(group)} confirmed"
            text = f"{text}; closest: {labels[closest.than]}, {closest.verdict}"
        # Attacks of one graph at several rates, and its splits, are one story if they end alike.
        source = where if closest.against or closest.wider_than else where.partition("@")[0]
        lines.setdefault((text, source, verdict), []).append(closest)
    for (text, _, verdict), group in lines.items():
        closest = min(group, key=_margin)
        where = f"`{claim_datasets(closest)}`"
        if len(group) > 1:
            where += f", the closest of {len(group)}"
            verdict += f" on {len(group)}"
        paper = "–" if closest.paper is None else f"{closest.paper:+g}"
        ours, bounds = claimed(closest)
        unit = f"{MEASURES[closest.measure].title}: " if closest.measure else ""
        cells = [
            text,
            where,
            paper,
            f"{unit}{ours} ({bounds})",
            f"{closest.n_better}, {closest.n_than}" + _splits(closest),
            verdict,
        ]
        yield f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |"


def _splits(claim: ClaimResult) -> str:
    return "" if claim.splits is None else f"; {claim.splits} splits"


def _margin(claim: ClaimResult) -> float:
    """Return by how much a claim holds; undefined differences come first."""
    if claim.difference is None:
        return float("-inf")
    more = not claim.measure or MEASURES[claim.measure].more_is_better
    return claim.difference if more else -claim.difference
