"""`clusterctl down`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .guard import typed
from .naming import require_name
from .options import ClusterOnly, DryRun, Json, Name, Yes

if TYPE_CHECKING:
    from autoscaler.provider import Machine
    from clusterctl.home import ClusterRecord, Home
    from clusterctl.launcher.down import Ended
    from clusterctl.providers.protocol import OperatorProvider
    from clusterctl.spec.definition import ClusterSpec


def down(
    spec: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE]", help="Which cluster; like --cluster.")
    ] = None,
    cluster: ClusterOnly = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    cluster_name: Name = None,
    workers_only: Annotated[
        bool, typer.Option("--workers-only", help="Terminate the workers; keep the head and its jobs.")
    ] = False,
    keep_min_workers: Annotated[
        bool, typer.Option("--keep-min-workers", help="Terminate only the workers beyond min_workers.")
    ] = False,
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Forget the cluster even if some of its machines are unreachable."),
    ] = False,
    adopt: Annotated[
        str | None,
        typer.Option("--adopt", metavar="CLUSTER_ID", help="Terminate this cluster of another owner."),
    ] = None,
) -> None:
    """Ends a cluster for good.

    Terminates all its machines, stopped ones included, and removes what was made around them. Without a name it takes
    this terminal's current cluster and asks by its name; with -y, give the name if several clusters are known.

    Works with a dead head, and with a YAML even without local state.

    \b
      clusterctl down -y training
      clusterctl down --workers-only      until the next `up`, or until work waits for them
      clusterctl down cluster.yaml --adopt demo-1a2b3c4d      what `down` names as another owner's
    """
    from clusterctl.errors import CliError, NotFound
    from clusterctl.home import Home
    from clusterctl.launcher import down as launcher
    from clusterctl.spec.load import load_file
    from clusterctl.spec.overrides import renamed

    home = Home.find()
    wanted = spec or cluster
    from_file = (
        renamed(load_file(wanted), cluster_name)
        if wanted and (wanted.endswith((".yaml", ".yml")) or os.sep in wanted)
        else None
    )
    wanted = wanted or cluster_name
    record = home.read(from_file.cluster_name) if from_file else home.resolve(wanted)
    loaded = record.spec if record else from_file
    assert loaded is not None
    if not dry_run:
        require_name(home, wanted, yes, "down")
    name = loaded.cluster_name
    with home.locked(name, "down"):
        record = home.read(name)  # as the command before left it
        if workers_only or keep_min_workers:
            if record is None:
                raise NotFound(
                    f"there is no cluster '{name}' here", "Only `clusterctl down FILE` ends all of it."
                )
            _end_workers(home, record, keep_min_workers, yes, dry_run, json)
            return
        if adopt is not None:
            _end_foreign(home, name, launcher.to_end(loaded, from_file), adopt, yes, dry_run, json, abandon)
            return
        is_known = record is not None or home.folder(name).exists()
        ends = launcher.to_end(record.spec if record else loaded, from_file)
        found = launcher.cluster_providers(home, name, ends, record)
        listed = launcher.listed(found)
        is_known = is_known or bool(listed)
        if record is None and not listed:
            _refuse_foreign(home, name, ends)
        if dry_run and is_known:
            _show(name, listed, json)
            return
        if (
            is_known
            and not yes
            and not output.confirm(f"End cluster '{name}' with its {len(listed)} machines?")
        ):
            raise CliError(
                f"nothing was ended of cluster '{name}'",
                f"`clusterctl down -y {wanted or name}` ends it without asking.",
            )
        # Where there seems to be none, a machine may have a key of it still, or may not say what it has.
        ended = launcher.Ended(0) if dry_run else _end(home, name, found, abandon)
    if not is_known:
        raise NotFound(
            f"there is no cluster '{name}': nothing is remembered, and no machine carries its tags"
        )
    if json:
        output.as_json({"cluster": name, "ended": ended.machines, "abandoned": ended.abandoned})
    else:
        _tell(name, ended)


def _refuse_foreign(home: Home, name: str, spec: ClusterSpec) -> None:
    """Names the clusters of this name that belong to others, which are not touched.

    Raises:
        Denied: there are some.
    """
    from clusterctl.errors import Denied
    from clusterctl.launcher import down as launcher

    found = launcher.foreign(home, name, spec)
    if found:
        raise Denied(
            f"cluster '{name}' belongs to another owner:\n  " + "\n  ".join(map(str, found)),
            f"Nothing was touched. To end it all the same: clusterctl down FILE --adopt {found[0].cluster_id}",
        )


def _end_foreign(
    home: Home,
    name: str,
    spec: ClusterSpec,
    cluster_id: str,
    yes: bool,
    dry_run: bool,
    json: bool,
    abandon: bool,
) -> None:
    """Ends one cluster of another owner, which was named. What is remembered here under its name stays."""
    from clusterctl.errors import CliError, NotFound
    from clusterctl.launcher import down as launcher

    others = launcher.foreign(home, name, spec)
    cluster = next((one for one in others if one.cluster_id == cluster_id), None)
    if cluster is None:
        known = "\n  ".join(map(str, others))
        raise NotFound(
            f"no other owner has a cluster '{name}' with the id {cluster_id}",
            f"Clusters of other owners:\n  {known}" if known else "`clusterctl down` ends your own.",
        )
    provider = launcher.adopted(home, spec, cluster)
    if dry_run:
        _show(name, launcher.listed([provider]), json)
        return
    if not yes and not output.confirm(f"End cluster {cluster}?"):
        raise CliError("nothing was ended", "Run it with -y to end the cluster without being asked.")
    ended = _end(home, name, [provider], abandon, forgets=False)
    if json:
        output.as_json({"cluster": name, "ended": ended.machines, "abandoned": ended.abandoned})
    else:
        _tell(name, ended)


def end_cluster(home: Home, cluster: ClusterRecord) -> None:
    """Ends this cluster and no later one of its name, without asking; one that has ended is none to end."""
    from clusterctl.launcher import down as launcher

    name = cluster.name
    with home.locked(name, typed()):
        record = home.again(cluster)
        if record is None:
            output.say(f"cluster '{name}' has ended already")
            return
        found = launcher.cluster_providers(home, name, record.spec, record)
        ended = _end(home, name, found, abandon=False)
    _tell(name, ended)


def _tell(name: str, ended: Ended) -> None:
    for left in ended.abandoned:
        output.warn(f"left as it is: {left}")
    count = f"{ended.machines} machine{'' if ended.machines == 1 else 's'} ended"
    if ended.abandoned:
        output.say(f"cluster '{name}' is forgotten: {count}, the rest is left")
    else:
        output.say(f"cluster '{name}' is down: {count}, nothing is left")


def _show(name: str, listed: Sequence[Machine], json: bool) -> None:
    if json:
        output.as_json({"cluster": name, "machines": [machine.id for machine in listed]})
        return
    for machine in listed:
        output.say(f"end {machine.id} ({machine.node_type}, {machine.state.value})")
    output.say(f"forget cluster '{name}'")


def _end(
    home: Home, name: str, found: Sequence[OperatorProvider], abandon: bool, forgets: bool = True
) -> Ended:
    from clusterctl.errors import Interrupted
    from clusterctl.launcher import down as launcher

    try:
        return launcher.down(home, name, found, output.progress, abandon, forgets)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: what has not ended of cluster '{name}' runs on; `clusterctl down` again ends it"
        ) from None


def _end_workers(
    home: Home, record: ClusterRecord, keeps_minimum: bool, yes: bool, dry_run: bool, json: bool
) -> None:
    from clusterctl.errors import CliError
    from clusterctl.launcher import down as launcher

    name = record.name
    ending = launcher.workers_of(record, keeps_minimum)
    if dry_run:
        if json:
            output.as_json({"cluster": name, "machines": ending})
        else:
            for machine in ending:
                output.say(f"end {machine}")
        return
    if not yes and not output.confirm(f"End {len(ending)} workers of cluster '{name}'?"):
        raise CliError("nothing was ended", "Run it with -y to end them without being asked.")
    ended = launcher.end_workers(home, record, keeps_minimum, output.progress)
    if json:
        output.as_json({"cluster": name, "ended": ended})
        return
    output.say(f"{ended} worker{'' if ended == 1 else 's'} of cluster '{name}' ended; the head runs on")
    output.progress("  when work waits for them, the autoscaler makes new ones")
