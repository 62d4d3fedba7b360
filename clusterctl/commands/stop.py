"""`clusterctl stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterctl import output

from .guard import typed
from .naming import require_name
from .options import Cluster, Which, Yes

if TYPE_CHECKING:
    from clusterctl.home import ClusterRecord, Home


def stop(which: Which = None, cluster: Cluster = None, yes: Yes = False) -> None:
    """Stops a cluster; `up` starts it again.

    Ends all programs, terminates the workers, and stops the head's machine but keeps it with the job history. To end
    the cluster for good, use `clusterctl down`.

    \b
      clusterctl stop -y
    """
    from clusterctl.errors import CliError
    from clusterctl.home import STOPPED, Home

    home = Home.find()
    name = home.resolve(cluster or which).name
    require_name(home, cluster or which, yes, "stop")
    with home.locked(name, "stop"):
        record = home.resolve(name)  # as the command before left it
        if record.state == STOPPED:
            output.say(f"cluster '{record.name}' is stopped already")
            return
        if not yes and not output.confirm(f"Stop cluster '{record.name}' and all programs on it?"):
            raise CliError(
                f"nothing was stopped of cluster '{name}'",
                f"`clusterctl stop -y {name}` stops it without asking.",
            )
        _stop(home, record)


def stop_cluster(home: Home, cluster: ClusterRecord) -> None:
    """Stops this cluster and no later one of its name, without asking; one that has ended is none to stop."""
    from clusterctl.home import STOPPED

    with home.locked(cluster.name, typed()):
        record = home.again(cluster)
        if record is None:
            output.say(f"cluster '{cluster.name}' has ended already")
        elif record.state == STOPPED:
            output.say(f"cluster '{record.name}' is stopped already")
        else:
            _stop(home, record)


def _stop(home: Home, record: ClusterRecord) -> None:
    from clusterctl.errors import Interrupted
    from clusterctl.launcher import down as launcher

    try:
        launcher.stop(home, record, output.progress)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: cluster '{record.name}' is stopped in part; `clusterctl stop` again goes on, "
            "`clusterctl up` brings it back"
        ) from None
    output.say(f"cluster '{record.name}' is stopped; start it again with: {record.up_command}")
