"""`clusterctl stop`."""

from __future__ import annotations

from clusterctl import output

from .options import Cluster, Which, Yes


def stop(which: Which = None, cluster: Cluster = None, yes: Yes = False) -> None:
    """Stops a cluster; `up` starts it again.

    The head's machine is kept, with the history of jobs. Programs that run on it end. Workers are given
    back. To end the cluster for good use `clusterctl down`.

    \b
      clusterctl stop -y
    """
    from clusterctl.errors import CliError, Interrupted
    from clusterctl.home import STOPPED, Home
    from clusterctl.launcher import down as launcher

    home = Home.find()
    name = home.resolve(which or cluster).name
    with home.locked(name, "stop"):
        record = home.resolve(name)  # as the command before left it
        if record.state == STOPPED:
            output.say(f"cluster '{record.name}' is stopped already")
            return
        if not yes and not output.confirm(f"Stop cluster '{record.name}' and all programs on it?"):
            raise CliError("nothing was stopped", "Run it with -y to stop the cluster without being asked.")
        try:
            launcher.stop(home, record, output.progress)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted: cluster '{name}' is stopped in part; `clusterctl stop` again goes on, `clusterctl up` "
                "brings it back"
            ) from None
    output.say(f"cluster '{record.name}' is stopped; start it again with: {record.up_command}")
