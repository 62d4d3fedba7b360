"""A head gives its own machine back: nobody else may be there to do it, and nothing that runs for it survives that."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

from autoscaler.provider import Transient
from clusterctl import processes

from . import claim as claims
from .claim import Claim

_END_S = 20.0


def give_back_own(claim: Claim, python: str) -> None:
    """Has everything on this machine ended, the caller included, and all files removed. Does not return if it works.

    Raises:
        Transient: it did not happen.
    """
    command, env = claims.give_back(claim, python)
    outside = {name: value for name, value in os.environ.items() if name != processes.TAG}
    # In the background of a shell that ends at once, it is nobody's child: it does not count as ours, and ends last.
    with contextlib.suppress(FileNotFoundError):
        os.chdir(claim.home)
    subprocess.run(
        ["/bin/sh", "-c", f"{{ {command}\n}} </dev/null >/dev/null 2>&1 &"],
        env={**outside, **env, "HOME": claim.home, "PATH": claim.path},
        start_new_session=True,
        check=True,
    )
    time.sleep(_END_S)
    raise Transient("this machine did not end what runs on it", 1.0)
