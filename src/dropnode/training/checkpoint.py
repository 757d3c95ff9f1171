"""Checkpoints: one safetensors file with everything that a killed run needs to resume.

A single file that is replaced atomically cannot mix two epochs. It has a checksum of everything in
it, because a run would go on from damaged weights without noticing. Reading it never executes
anything, as reading a pickle could.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from dropnode.errors import CheckpointError
from dropnode.files import write_bytes


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run: position, weights, optimiser, best weights and history."""

    seed: int
    phase: int
    epoch: int
    progress: dict[str, Any]
    best_epoch: int
    seconds: float
    history: list[dict[str, float]]
    state: dict[str, torch.Tensor]
    best_state: dict[str, torch.Tensor] | None
    optimiser: dict[str, Any]


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically, so that ``path`` always holds a complete one."""
    tensors = {f"state/{name}": value for name, value in checkpoint.state.items()}
    tensors |= {f"best/{name}": value for name, value in (checkpoint.best_state or {}).items()}
    slots = checkpoint.optimiser["state"]
    for index, slot in slots.items():
        tensors |= {f"optimiser/{index}/{name}": value for name, value in slot.items()}
    position = {
        "seed": checkpoint.seed,
        "phase": checkpoint.phase,
        "epoch": checkpoint.epoch,
        "progress": checkpoint.progress,
        "best_epoch": checkpoint.best_epoch,
        "seconds": checkpoint.seconds,
        # JSON keeps every bit of a float, and Python's JSON has NaN and infinity.
        "history": checkpoint.history,
        "param_groups": checkpoint.optimiser["param_groups"],
    }
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    told = json.dumps(position)
    content = save(plain, metadata={"position": told, "sha256": _checksum(told, plain)})
    if not path.parent.is_dir():
        # Writing would make the folder again, with a checkpoint in it and nothing else.
        raise CheckpointError(
            f"{path.parent} was deleted while the run was writing to it; run the same command again"
        )
    write_bytes(path, content)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Read a checkpoint; None if the file does not exist."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        told = metadata["position"]
        if metadata["sha256"] != _checksum(told, tensors):
            raise ValueError("its checksum does not match: it was damaged")
        return _assemble(json.loads(told), tensors)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version, or is damaged "
            f"({type(error).__name__}: {error}); delete it to start again"
        ) from error


def resume_point(path: Path | None, seed: int) -> Checkpoint | None:
    """Return the checkpoint from which a run with this seed goes on; None if it begins."""
    found = read_checkpoint(path) if path else None
    if found and found.seed != seed:
        raise CheckpointError(
            f"{path} belongs to a run with seed {found.seed}, but this run has seed {seed}; give "
            "this run another checkpoint path"
        )
    return found


def _checksum(position: str, tensors: dict[str, torch.Tensor]) -> str:
    """Return a hash of the position, and of the names, types, shapes and bytes of all tensors."""
    digest = hashlib.sha256(position.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _assemble(position: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Checkpoint:
    slots: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser/"):
            _, index, slot = name.split("/", 2)
            slots.setdefault(int(index), {})[slot] = value
    return Checkpoint(
        seed=position["seed"],
        phase=position["phase"],
        epoch=position["epoch"],
        progress=position["progress"],
        best_epoch=position["best_epoch"],
        seconds=position["seconds"],
        history=position["history"],
        state=_under("state/", tensors),
        best_state=_under("best/", tensors) or None,
        optimiser={"state": slots, "param_groups": position["param_groups"]},
    )


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
