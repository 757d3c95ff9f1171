"""The parts of the benchmark by name."""

QUICK_PARTS = ("epoch", "baselines", "propagation", "scaling")
"""The parts that are measured by default: five minutes on two idle cores."""

PARTS = (*QUICK_PARTS, "accuracy", "scale")
