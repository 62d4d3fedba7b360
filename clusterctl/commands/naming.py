"""Whether a command that ends something was told which cluster it is to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterctl.home import Home


def require_name(home: Home, named: str | None, yes: bool, command: str) -> None:
    """Refuses `-y` where the cluster is only this terminal's current one, and another could have been meant. Without
    `-y` the command asks, and its question names the cluster.

    Args:
        named: what the command line says.

    Raises:
        UsageProblem: `-y` alone does not say which cluster.
    """
    from clusterctl.errors import UsageProblem
    from runtime._session.current_cluster import VARIABLE, By

    if named or not yes:
        return
    name, by = home.current()
    known = home.names()
    if by is By.TERMINAL and len(known) > 1:
        raise UsageProblem(
            f"`clusterctl {command} -y` names no cluster, and {len(known)} are known: {', '.join(known)}",
            f"Name it, as in `clusterctl {command} -y {name}`, or with {VARIABLE}.",
        )
