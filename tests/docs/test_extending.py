"""The code on the pages about extending the package works, step by step as they tell it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pages import ROOT, blocks, command

PAGES = ("add-a-method", "add-a-dataset", "add-a-measure")


def test_the_steps_of_the_pages_work(tmp_path: Path) -> None:
    """A copy of the package is changed as the pages say; then their code and commands are run.

    All in one process, since most of the time is that of importing torch.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "dropnode", tmp_path / "src" / "dropnode", ignore=ignored)
    script = []
    for page in PAGES:
        code = []
        for block in blocks(ROOT / "docs" / "extending" / f"{page}.md"):
            if block.language == "console":
                code += [command(line) for line in block.text.splitlines()]
            elif block.caption:
                change(tmp_path, block.caption, block.text)
            elif block.language == "python":
                code.append(block.text)
        whole = "\n".join(code)
        script.append(f"exec(compile({whole!r}, 'the code of {page}.md', 'exec'), {{}})")
    # Kernels of the copy would have to be compiled, and would stay in the user's cache.
    variables = {"DROPNODE_KERNELS": "0", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(script)],
        cwd=tmp_path,
        env=os.environ | variables | {"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def change(folder: Path, caption: str, text: str) -> None:
    """Make a change as its caption says: a new file, its end, an import, or a line of a table."""
    where, _, file = caption.rpartition(" ")
    path = folder / file
    if not where:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    before = path.read_text(encoding="utf-8")
    name = where.rpartition(" ")[0]
    if name == "end":
        path.write_text(f"{before}\n\n{text}", encoding="utf-8")
        return
    opens = "from __future__ import annotations\n" if name == "import" else rf"{name}: .*?{{\n"
    found = re.search(rf"^{opens}", before, re.MULTILINE | re.DOTALL)
    assert found, f"{file} has no {name}"
    path.write_text(before[: found.end()] + text + before[found.end() :], encoding="utf-8")
