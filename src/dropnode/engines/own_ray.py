"""A Ray of our own: reachable from this machine alone, with a token that only the user can read.

Whoever reaches a port of Ray and knows its token can run any code. Ray's services listen on every
network interface, and Ray writes its token where every user of the machine can read it.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dropnode.engines.base import set_variables

ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Says that Ray is for one machine; this is its default on systems other than Linux."""

ON_ONE_MACHINE = {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
"""Says that the processes of a team are on one machine: Gloo takes the interface of the host's name
otherwise."""

TOKEN_GIVEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables by which the user gives Ray another token."""


def is_on_loopback(ray: Any) -> bool:
    """Return whether the Ray that is connected can have no other machines."""
    address: str = ray.get_runtime_context().gcs_address
    return address.startswith(("127.", "localhost", "[::1]"))


@contextmanager
def on_loopback(ray: Any) -> Iterator[None]:
    """Make a Ray that is started in the enclosed code listen on the loopback interface alone.

    Ray has no option for it: it replaces a loopback address by one that others can reach, unless
    it is for one machine, which it decides when it is imported.
    """
    constants = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        with set_variables(ALONE):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def make_private_token() -> None:
    """Write Ray's token, for its owner alone, unless there is one or the user has another.

    Ray takes a token that exists. One that an earlier Ray wrote for everybody is made private.
    """
    if any(name in os.environ for name in TOKEN_GIVEN):
        return
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    # Where it cannot be written, or there is no home, Ray says so itself.
    with suppress(OSError, RuntimeError):
        path = Path.home() / ".ray" / "auth_token"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            path.chmod(0o600)
            return
        with os.fdopen(file, "w") as token:
            token.write(secrets.token_hex(32))
