"""Look at a graph before training: what it has, what its labels can tell, which method suits it."""

from dropnode.inspection.advice import advice
from dropnode.inspection.comparison import Comparison, compare, features_alone
from dropnode.inspection.inspect import Inspection, inspect_graph
from dropnode.inspection.picture import draw_inspection
from dropnode.inspection.structure import Structure, structure_of

__all__ = [
    "Comparison",
    "Inspection",
    "Structure",
    "advice",
    "compare",
    "draw_inspection",
    "features_alone",
    "inspect_graph",
    "structure_of",
]
