"""The environment of a result: what it runs on, in plain values."""

from __future__ import annotations

import json
import os
import platform

import numpy as np
import torch

import dropnode
from dropnode.environment import environment, versions


def test_versions_are_those_of_the_libraries_in_use() -> None:
    assert versions() == {
        "dropnode": dropnode.__version__,
        "torch": torch.__version__.partition("+")[0],
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def test_the_environment_is_json_and_names_the_processor() -> None:
    told = environment()
    assert json.loads(json.dumps(told)) == told
    assert told["versions"] == versions()
    assert told["cores"] == os.cpu_count()
    assert told["processor"].strip()
