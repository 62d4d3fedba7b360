"""`clusterctl down`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from clusterctl import output

from .options import Cluster, DryRun, Json, Yes


def down(
    spec: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE]", help="Which cluster; as --cluster.")
    ] = None,
    cluster: Cluster = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Forget the cluster even if machines of it cannot be reached.")
    ] = False,
) -> None:
    """Ends a cluster for good.

    All its machines go, stopped ones included, and what was made around them.

    Works when the head is dead, and with a YAML even when this machine has forgotten the cluster.

    \b
      clusterctl down -y
    """
    from clusterctl.errors import CliError, NotFound
    from clusterctl.home import Home
    from clusterctl.launcher import down as launcher
    from clusterctl.spec.load import load_file

    home = Home.find()
    wanted = spec or cluster
    from_file = (
        load_file(wanted) if wanted and (wanted.endswith((".yaml", ".yml")) or os.sep in wanted) else None
    )
    record = home.read(from_file.cluster_name) if from_file else home.resolve(wanted)
    loaded = record.spec if record else from_file
    assert loaded is not None
    name = loaded.cluster_name
    with home.locked(name, "down"):
        found = launcher.cluster_providers(home, name, loaded, record)
        listed = launcher.listed(found)
        if record is None and not listed:
            raise NotFound(
                f"there is no cluster '{name}': nothing is remembered, and no machine carries its tags"
            )
        if dry_run:
            if json:
                output.as_json({"cluster": name, "machines": [machine.id for machine in listed]})
            else:
                for machine in listed:
                    output.say(f"end {machine.id} ({machine.node_type}, {machine.state.value})")
                output.say(f"forget cluster '{name}'")
            return
        if not yes and not output.confirm(f"End cluster '{name}' with its {len(listed)} machines?"):
            raise CliError("nothing was ended", "Run it with -y to end the cluster without being asked.")
        ended = launcher.down(home, name, found, output.progress, abandon)
    if json:
        output.as_json({"cluster": name, "ended": ended})
    else:
        output.say(
            f"cluster '{name}' is down: {ended} machine{'' if ended == 1 else 's'} ended, nothing is left"
        )
