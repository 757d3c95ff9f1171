"""Print how many times as fast as the naive path each path is on one thread, as JSON.

``python tests/bench/measure_ratios.py DATASET``; what ratios.json holds was printed by this.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from dropnode.bench.epochs import time_epochs
from dropnode.data import load_dataset

PATHS = ("exact", "fast")


def main(dataset: str) -> None:
    """Measure one dataset."""
    torch.set_num_threads(1)
    timings = time_epochs(
        dataset,
        load_dataset(dataset),
        ("naive", *PATHS),
        rounds=5,
        burst=0.3,
        # The processor's time, not the wall's: what other processes take of the core is not ours.
        clock=time.process_time,
    )
    print(json.dumps({path: timings.speedup(path, over="naive").median for path in PATHS}))


if __name__ == "__main__":
    main(sys.argv[1])
