"""Which engine runs trials, or one training: this machine, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dropnode.experiments.runner import Engine
    from dropnode.training import Outcome


def find_engine(
    name: str, address: str | None, jobs: int | None, timeout: float
) -> tuple[Engine, int]:
    """Return the requested engine, and how many trials it runs at a time."""
    from dropnode.engines.base import cores, usable_jobs
    from dropnode.engines.local import run_local
    from dropnode.errors import ConfigError
    from dropnode.experiments.run import run_trial
    from dropnode.settings import suggestion

    if name == "local":
        _refuse_address(address)
        at_once = usable_jobs(jobs, cores())
        return lambda trials, data: run_local(
            run_trial, trials, at_once, shared=data, timeout=timeout
        ), at_once
    if name == "ray":
        from dropnode.engines.ray_cluster import run_ray

        return lambda trials, data: run_ray(
            run_trial, trials, address=address, jobs=jobs, shared=data, timeout=timeout
        ), jobs or cores()
    raise ConfigError(f"unknown engine {name!r}{suggestion(name, ('local', 'ray'))}")


def find_trainer(
    name: str, method: str, workers: int | None, address: str | None
) -> Callable[..., Outcome]:
    """Return the function that trains a method once, on the requested engine."""
    from dropnode.errors import ConfigError
    from dropnode.settings import suggestion
    from dropnode.training import train

    if name == "local":
        _refuse_address(address)
        if workers is not None:
            raise ConfigError(
                f"--workers {workers} is the number of processes that train together on Ray; add "
                "--engine ray, or leave it out"
            )
        return train
    if name == "ray":
        from dropnode.methods.grand_plus.on_ray import train_on_ray

        if method != "grand-plus":
            raise ConfigError(
                f"--engine ray trains grand-plus alone, not {method}; add --method grand-plus, or "
                "leave out --engine"
            )
        if workers is None:
            raise ConfigError(
                "--engine ray needs the number of processes that train together, which results "
                "depend on; add --workers N"
            )
        return partial(train_on_ray, workers=workers, address=address)
    raise ConfigError(f"unknown engine {name!r}{suggestion(name, ('local', 'ray'))}")


def _refuse_address(address: str | None) -> None:
    from dropnode.errors import ConfigError

    if address is not None:
        raise ConfigError(
            f"--address {address} is the address of a Ray cluster; add --engine ray, or leave "
            "it out"
        )
