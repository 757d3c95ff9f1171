"""The built wheel, installed alone, works: nothing is found in the source tree by accident."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_wheel_works_without_the_source_tree(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    # Dependencies come from this environment; only the wheel itself is installed anew.
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, timeout=120)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "title: t\ndatasets: [digits]\nseeds: 1\nset: {max_epochs: 2}\nrows: [{method: grand}]\n"
    )
    specs = sorted(path.stem for path in (ROOT / "src/dropnode/experiments/specs").iterdir())
    program = f"""
import sys
sys.path.insert(0, {str(site)!r})
import dropnode, dropnode.cli
assert dropnode.__file__.startswith({str(site)!r}), dropnode.__file__
from dropnode.experiments.spec_file import load_spec, spec_names
assert [load_spec(name).name for name in spec_names()] == {specs}
assert dropnode.cli._run(["reproduce", {str(spec)!r}, "--out", {str(tmp_path / "out")!r}]) == 0
sys.exit(dropnode.cli._run(
    ["train", "digits", "--json", "--set", "max_epochs=5", "--out", {str(tmp_path / "run")!r}]
))
"""
    finished = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout.splitlines()[-1])["epochs"] == 5
    assert "<table" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert (site / "dropnode" / "py.typed").exists()
