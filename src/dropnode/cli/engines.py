"""Which engine runs trials: this machine, or a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dropnode.experiments.runner import Engine


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
        if address is not None:
            raise ConfigError(
                f"--address {address} is the address of a Ray cluster; add --engine ray, or leave "
                "it out"
            )
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
