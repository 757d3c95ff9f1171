"""Results from stored trials: a row per method and dataset, comparisons, and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dropnode.environment import environment
from dropnode.experiments import measures
from dropnode.experiments.record import Record
from dropnode.experiments.references import Reference
from dropnode.experiments.results import (
    ClaimResult,
    Comparison,
    DatasetFacts,
    Machine,
    Results,
    RowResult,
    Stage,
    StageRow,
    Verdict,
)
from dropnode.experiments.runner import Cell
from dropnode.experiments.spec import Claim, Spec
from dropnode.experiments.statistics import (
    Difference,
    Scores,
    Summary,
    compare,
    compare_gaps,
    holm,
    summarise,
    summarise_trials,
)
from dropnode.experiments.trials import Data, now

ENOUGH = 20
"""The number of seeds per row from which a claim without a significant difference is not confirmed;
with fewer, the verdict is that there are too few seeds."""

LEVEL = 0.05
"""The level of significance: a claim is confirmed or contradicted if its p-value is below it."""

Find = Callable[[str], Record | None]
"""Returns the record of a trial by its id; None if it has not ended."""


def summarise_experiment(
    spec: Spec,
    data: Data,
    cells: Sequence[Cell],
    find: Find,
    command: str,
    stages: Sequence[Stage] = (),
    absent: Sequence[str] = (),
) -> Results:
    """Return the results of the trials that ended."""
    scores = {(cell.name, cell.dataset): _scores(cell, find) for cell in cells}
    claimed = {claim.measure for claim in spec.claims}
    by_measure = {
        name: {(cell.name, cell.dataset): _scores(cell, find, name) for cell in cells}
        for name in claimed
    }
    return Results(
        experiment=spec.name,
        title=spec.title,
        description=spec.description,
        command=command,
        finished=now(),
        environment=Machine(**environment()),
        datasets=tuple(_dataset(data, name) for name in spec.datasets),
        rows=tuple(_row(spec, cell, find) for cell in cells),
        comparisons=_comparisons(spec, scores),
        claims=_claims(spec, by_measure),
        stages=tuple(stages),
        plots=spec.plots,
        absent=tuple(absent),
    )


def summarise_stage(number: int, cells: Sequence[Cell], find: Find) -> list[Stage]:
    """Return the results of one stage of a search, one per dataset.

    The setting with the best mean validation accuracy is chosen; among equals, the first.
    """
    stages = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        rows = [_setting(cell, find) for cell in cells if cell.dataset == dataset]
        means = [-np.inf if row.val_mean is None else round(row.val_mean, 9) for row in rows]
        best = int(np.argmax(means))
        if rows[best].val_mean is not None:
            rows[best] = replace(rows[best], chosen=True)
        stages.append(Stage(dataset, number, tuple(rows[0].changes), tuple(rows)))
    return stages


def _setting(cell: Cell, find: Find) -> StageRow:
    val, test = (
        summarise(list(_scores(cell, find, name).values()))
        for name in ("val_accuracy", "test_accuracy")
    )
    return StageRow(
        changes=cell.setting,
        val_mean=val.mean,
        val_std=val.std,
        test_mean=test.mean,
        test_std=test.std,
        n=val.n,
        asked=len(cell.trials),
        chosen=False,
        trials=tuple(trial.id for trial in cell.trials),
    )


def _scores(cell: Cell, find: Find, name: str = "test_accuracy") -> dict[tuple[str, int], float]:
    """Return a measure of every trial that has it, by split and seed; fractions in percent."""
    factor = 100 if measures.MEASURES[name].kind == "fraction" else 1
    scores: dict[tuple[str, int], float] = {}
    for trial in cell.trials:
        record = find(trial.id)
        if record is not None and record.metrics.get(name) is not None:
            scores[trial.split, trial.seed] = factor * record.metrics[name]
    return scores


def _row(spec: Spec, cell: Cell, find: Find) -> RowResult:
    scores = _scores(cell, find)
    values = list(scores.values())
    records = [record for trial in cell.trials if (record := find(trial.id)) is not None]
    seconds = [record.seconds for record in records if record.seconds is not None]
    row = next(row for row in spec.rows if row.name == cell.name)
    paper, deviation = row.paper.get(cell.dataset, (None, None))
    accuracy = summarise_trials(scores)
    return RowResult(
        dataset=cell.dataset,
        method=cell.name,
        label=cell.label,
        preset=cell.trials[0].preset,
        config=dict(cell.trials[0].config),
        accuracy=accuracy,
        median=float(np.median(values)) if values else None,
        asked=len(cell.trials),
        failed=sum(record.status == "failed" for record in records),
        paper=paper,
        paper_std=deviation,
        difference=None if accuracy.mean is None or paper is None else accuracy.mean - paper,
        seconds=float(np.median(seconds)) if seconds else None,
        trials=tuple(trial.id for trial in cell.trials),
        measures=_measures(spec, cell, find),
        chosen=dict(cell.setting),
        series=row.series,
        at=dict(row.at),
    )


def _measures(spec: Spec, cell: Cell, find: Find) -> dict[str, Summary]:
    """Summarise those measures requested by the spec that are numbers."""
    return {
        name: summarise_trials(_scores(cell, find, name))
        for name in spec.measures
        if measures.MEASURES[name].kind in measures.NUMBERS
    }


def _dataset(data: Data, name: str) -> DatasetFacts:
    split = next(split for (dataset, _), split in data.splits.items() if dataset == name)
    reference = Reference.parse(name)
    source = reference.source
    graph = data.graphs[source]
    count = sum(dataset == name for dataset, _ in data.splits)
    return DatasetFacts(
        name=name,
        sha256=data.fingerprints[source],
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        classes=graph.num_classes,
        class_names=tuple(str(label) for label in graph.class_names),
        split=split.name if count == 1 else f"{split.name}, and {count - 1} more",
        train=len(split.train),
        val=len(split.val),
        test=len(split.test),
        sizes_of=source if reference.changes_graph else "",
    )


ScoresOfCells = Mapping[tuple[str, str], Scores]
"""The scores of each row on each dataset."""


def _comparisons(spec: Spec, scores: ScoresOfCells) -> tuple[Comparison, ...]:
    """Compare the reference with every other row; Holm's correction covers all comparisons."""
    if (reference := spec.reference) is None:
        return ()
    pairs = [
        (dataset, reference, row.name)
        for dataset in spec.datasets
        for row in spec.rows
        if row.name != reference and {(row.name, dataset), (reference, dataset)} <= scores.keys()
    ]
    tests = _compare(scores, pairs)
    corrected = holm([test.p for test in tests])
    wilcoxon = holm([test.wilcoxon_p for test in tests])
    return tuple(
        Comparison(*pair, test, p, paired_p)
        for pair, test, p, paired_p in zip(pairs, tests, corrected, wilcoxon, strict=True)
    )


def _claims(spec: Spec, scores: Mapping[str, ScoresOfCells]) -> tuple[ClaimResult, ...]:
    """Test the paper's claims; Holm's correction covers all tests, and each test once."""
    claims = [
        (claim, dataset)
        for claim in spec.claims
        for dataset in claim.datasets or spec.datasets
        if set(claim.sides(dataset)) <= scores[claim.measure].keys()
    ]
    tests = {
        (claim.measure, *sides): _test([scores[claim.measure][side] for side in sides])
        for claim, dataset in claims
        for sides in [claim.sides(dataset)]
    }
    corrected = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    judged = []
    for claim, dataset in claims:
        key = (claim.measure, *claim.sides(dataset))
        test, p = tests[key], corrected[key]
        judged.append(
            ClaimResult(
                claim=claim.claim,
                dataset=dataset,
                better=claim.better,
                than=claim.than,
                difference=test.difference,
                p=test.p,
                n_better=test.n_first,
                n_than=test.n_second,
                p_holm=p,
                verdict=_verdict(claim, test, p),
                measure="" if claim.measure == "test_accuracy" else claim.measure,
                low=test.low,
                high=test.high,
                against=claim.against or "",
                wider_than=claim.wider_than or "",
                paper=_stated(spec, claim, dataset),
                splits=test.splits,
                unpaired_splits=test.unpaired_splits,
            )
        )
    return tuple(judged)


def _test(sides: Sequence[Scores]) -> Difference:
    """Compare two groups, or the difference of the first two with that of the other two."""
    if len(sides) == 2:
        return compare(sides[0], sides[1])
    return compare_gaps((sides[0], sides[1]), (sides[2], sides[3]))


def _stated(spec: Spec, claim: Claim, dataset: str) -> float | None:
    """Return the difference that the paper states, or that between its two accuracies."""
    if claim.paper is not None or claim.wider_than or claim.measure != "test_accuracy":
        return claim.paper
    figures = {row.name: row.paper for row in spec.rows}
    better = figures[claim.better].get(dataset)
    than = figures[claim.than].get(claim.against or dataset)
    # The paper's figures have one digit; the sum of floats would show more.
    return None if better is None or than is None else round(better[0] - than[0], 2)


def _compare(scores: ScoresOfCells, pairs: Sequence[tuple[str, str, str]]) -> list[Difference]:
    return [
        compare(scores[first, dataset], scores[second, dataset]) for dataset, first, second in pairs
    ]


def _verdict(claim: Claim, test: Difference, p: float | None) -> Verdict:
    """Return the verdict on a claim, given its test and the corrected p-value."""
    if claim.size and _excludes(test, claim.paper):
        # The size is tested by the interval alone; p is about a difference of zero.
        return Verdict.CONTRADICTED
    if p is not None and test.difference is not None and p < LEVEL:
        more_is_better = measures.MEASURES[claim.measure].more_is_better
        holds = (test.difference > 0) == more_is_better
        return Verdict.CONFIRMED if holds else Verdict.CONTRADICTED
    if min(test.n_first, test.n_second) < ENOUGH:
        return Verdict.TOO_FEW_SEEDS
    return Verdict.NOT_CONFIRMED


def _excludes(test: Difference, size: float | None) -> bool:
    """Return whether the 95 % interval of a difference is known, and does not contain a size."""
    if size is None or test.low is None or test.high is None:
        return False
    return not test.low <= size <= test.high
