"""`--start`: brings the cluster up before a command."""

from __future__ import annotations

import contextlib
import sys


def started(cluster: str | None) -> None:
    """Brings a cluster up, if it is not: the one of a YAML, or one that is known. Says so on stderr.

    One that runs stays as it is, whatever its YAML says now.
    """
    from clusterctl.home import UP, Home
    from clusterctl.spec.load import load_file

    from .cluster_first import is_cluster_file
    from .opened_cluster import OpenedCluster
    from .up import Agreed, bring_up

    home = Home.find()
    if cluster and is_cluster_file(cluster):
        file, name, record = cluster, None, home.read(load_file(cluster).cluster_name)
    else:
        record = home.resolve(cluster)
        file, name = record.spec_file, record.name if record.is_renamed else None
    if record is not None and record.state == UP:
        from clusterctl.launcher import look
        from clusterctl.launcher.plan import Health

        if look.health(home, record, OpenedCluster(home, record).provider()) is Health.ANSWERS:
            return
    with contextlib.redirect_stdout(sys.stderr):
        bring_up(file, Agreed.COSTS, cluster_name=name)
