"""The Ray engine for work that processes do together: Ray Train starts them, and starts them again.

A team cannot go on without a member. If one dies, Ray Train ends the others and starts all of them
again, where the cluster has room. What the team has achieved until then is in a file of the
driver, which its first member writes and all members read, so nodes need no shared disk.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dropnode.engines.base import check_jobs, set_variables
from dropnode.engines.own_ray import ON_ONE_MACHINE, is_on_loopback
from dropnode.engines.ray_cluster import QUIET, connected, reason
from dropnode.engines.sharing import separate
from dropnode.errors import ConfigError, DropnodeError, WorkError
from dropnode.files import write_bytes

if TYPE_CHECKING:
    # The actor that keeps the file starts sooner without torch.
    from dropnode.engines.team import Team

RESTARTS = 10
"""How often a team is started again before its work fails."""

PAUSE = 0.25
"""Seconds between two looks at what the team has told."""

CHECKS = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5"}
"""How often Ray Train looks whether members are alive and done; its own default is two seconds."""


class TeamFile:
    """A file of the driver, and what its team tells the driver, as members see them."""

    def __init__(self, ray: Any, keeper: Any) -> None:
        self.ray, self.keeper = ray, keeper

    def read(self) -> bytes | None:
        """Return the content; None if nothing was written yet."""
        content: bytes | None = self.ray.get(self.keeper.read.remote())
        return content

    def write(self, content: bytes) -> None:
        """Replace the content atomically, and return when that is done."""
        problem: DropnodeError | None = self.ray.get(self.keeper.write.remote(content))
        if problem is not None:
            raise problem

    def tell(self, news: Any) -> None:
        """Send the driver a small object, without waiting for it."""
        self.keeper.tell.remote(news)


def run_team(
    function: Callable[[Any, Team, TeamFile], None],
    workers: int,
    file: Path,
    *,
    address: str | None = None,
    shared: Any = None,
    gpu: bool = False,
    on_news: Callable[[Any], None] = lambda news: None,
) -> None:
    """Call ``function(shared, team, file)`` in several processes of a Ray cluster at the same time.

    If a member dies, all are started again, at most :data:`RESTARTS` times. The function then goes
    on from what its first member has written to the file.

    Parameters
    ----------
    function : callable
        A function of a module that every node can import. A :class:`DropnodeError` that it raises
        is raised here, and nothing is started again.
    workers : int
        The number of members, each on one CPU and with one thread.
    file : Path
        On the disk of this machine. What is there already is where the team goes on from.
    address : str, optional
        As for :func:`~dropnode.engines.ray_cluster.run_ray`, but not ``ray://``: the file has to
        be on a machine of the cluster.
    shared : object, optional
        Data that every member reads. Its arrays are in the memory of each machine once, and are
        read-only.
    gpu : bool
        Whether each member also has a GPU; they then sum by NCCL instead of Gloo.
    on_news : callable, optional
        Gets everything that members tell, in order, on this thread.

    Raises
    ------
    ConfigError
        If no cluster answers, or it has too few CPUs or GPUs.
    WorkError
        If members keep dying.
    """
    with room_for_team(workers, address, gpu) as (ray, variables):
        # On the node of this process, whose disk has the file.
        here = {ray._raylet.RAY_NODE_ID_KEY: ray.get_runtime_context().get_node_id()}
        keeper = ray.remote(num_cpus=0, label_selector=here)(_Keeper).remote(str(file))
        assignment = {"parcel": ray.put(separate((function, shared))), "keeper": keeper}
        try:
            with (
                tempfile.TemporaryDirectory(prefix="dropnode-") as folder,
                set_variables(CHECKS),
            ):
                _supervise(
                    _trainer(workers, gpu, variables, folder, assignment).fit,
                    lambda: list(map(on_news, ray.get(keeper.news.remote()))),
                )
            error = ray.get(keeper.error.remote())
        except ray.exceptions.RayError as problem:
            raise WorkError(_failed(problem)) from problem
        finally:
            # Without it, members that nobody waits for any more come to an end too.
            ray.kill(keeper)
        if error is not None:
            raise error


@contextmanager
def room_for_team(
    workers: int, address: str | None, gpu: bool
) -> Iterator[tuple[Any, dict[str, str]]]:
    """Connect to a cluster that can run all members of a team at the same time.

    For the duration of a ``with`` block, as :func:`~dropnode.engines.ray_cluster.connected` does.
    A caller with work to do before its team is there learns at once that there is no room for it.
    """
    check_jobs(workers)
    if address is not None and address.startswith("ray://"):
        raise ConfigError(
            f"the address {address} is for a driver outside the cluster; run the same command on a "
            "machine of the cluster, with the address auto"
        )
    with connected(address, workers) as (ray, variables):
        for name in ("CPU", "GPU") if gpu else ("CPU",):
            there = int(ray.cluster_resources().get(name, 0))
            if there < workers:
                raise ConfigError(
                    f"{workers} workers need {workers} {name}s at the same time, and the Ray "
                    f"cluster has {there}; ask for fewer workers, or add nodes"
                )
        yield ray, variables | (ON_ONE_MACHINE if is_on_loopback(ray) else {})


def _supervise(work: Callable[[], Any], look: Callable[[], Any]) -> None:
    """Do the work on another thread, and look at its news until it is done.

    On the main thread, Ray Train would replace the caller's handler of Ctrl-C for good.
    """
    problems: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        # Of any kind, since it is raised again below.
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(PAUSE)
        look()
    # The work may have ended between a look and the question whether it goes on.
    look()
    if problems:
        raise WorkError(_failed(problems[0])) from problems[0]


def _failed(problem: BaseException) -> str:
    return (
        f"the workers of a training failed {RESTARTS + 1} times, or Ray did ({reason(problem)}); "
        "if memory ran out, ask for fewer workers, then run the same command again"
    )


def _trainer(
    workers: int, gpu: bool, variables: dict[str, str], folder: str, assignment: dict[str, Any]
) -> Any:
    """Return Ray Train's trainer."""
    with set_variables(QUIET):
        try:
            from ray.train import FailureConfig, RunConfig, ScalingConfig
            from ray.train.torch import TorchConfig, TorchTrainer
        except ImportError as error:
            raise ConfigError(
                f'training on Ray needs Ray Train ({error}): pip install "dropnode[ray]"'
            ) from error
    return TorchTrainer(
        _member,
        train_loop_config=assignment,
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(
            name="dropnode",
            # Ray Train wants a place for checkpoints; ours are not there.
            storage_path=folder,
            failure_config=FailureConfig(max_failures=RESTARTS),
            worker_runtime_env={"env_vars": variables},
        ),
    )


def _member(assignment: dict[str, Any]) -> None:
    """Do a member's part of the work; this runs in its process."""
    import ray
    import ray.train
    import ray.train.torch

    from dropnode.engines.team import Team

    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    team = Team(context.get_world_rank(), context.get_world_size(), str(device))
    skeleton, arrays = ray.get(assignment["parcel"])
    function, shared = pickle.loads(skeleton, buffers=arrays)
    keeper = assignment["keeper"]
    if ray.get(keeper.error.remote()) is not None:
        # The others failed when that member ended, and all were started again.
        return
    try:
        function(shared, team, TeamFile(ray, keeper))
    except DropnodeError as error:
        # Not raised, since Ray Train would start the team again, only to fail in the same way.
        ray.get(keeper.fail.remote(error))


class _Keeper:
    """The actor beside the driver that writes its file, and passes on what members tell."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.told: list[Any] = []
        self.problem: DropnodeError | None = None

    def read(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None

    def write(self, content: bytes) -> DropnodeError | None:
        if not self.path.parent.is_dir():
            # Writing would make the folder again, with this file in it and nothing else.
            return WorkError(f"{self.path.parent} was deleted while workers wrote to it")
        write_bytes(self.path, content)
        return None

    def tell(self, news: Any) -> None:
        self.told.append(news)

    def news(self) -> list[Any]:
        told, self.told = self.told, []
        return told

    def fail(self, problem: DropnodeError) -> None:
        self.problem = problem

    def error(self) -> DropnodeError | None:
        return self.problem
