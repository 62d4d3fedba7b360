"""`clusterctl cluster list|use|export|import|ssh-config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterctl import output

from .options import Cluster, Json, Which, known_clusters

if TYPE_CHECKING:
    from clusterctl.home import ClusterRecord, Home

_ASK_S = 3.0
_AT_ONCE = 16
_DAMAGED = "DAMAGED"
"""Instead of a state: the record of the cluster cannot be read."""


def list_clusters(json: Json = False) -> None:
    """Lists the clusters that this machine knows, and whether their heads answer.

    A star marks this terminal's current cluster.

    \b
      clusterctl cluster list --json
    """
    import time
    from concurrent.futures import ThreadPoolExecutor
    from functools import partial

    from clusterctl.home import Home

    home = Home.find()
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        # Read here, one after the other: msgspec crashes when threads are the first to decode a type at the same time.
        records = [_record(home, name) for name in home.names()]
        found = list(pool.map(partial(_describe, home), filter(None, records)))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no machine that does not answer
    current = home.current().name
    if json:
        output.as_json([{**item, "is_current": item["cluster_name"] == current} for item in found])
        return
    if not found:
        output.progress("no cluster is known here; bring one up with: clusterctl up FILE")
        return
    rows = [
        (
            f"{item['cluster_name']}{' *' if item['cluster_name'] == current else ''}",
            item["state"],
            item["provider"],
            item["head"],
            item["head_answers"],
            output.duration(time.time() - item["created_s"]) if item["created_s"] else "",
            item["file"],
        )
        for item in found
    ]
    for line in output.table(("cluster", "state", "provider", "head", "head answers", "age", "file"), rows):
        output.say(line)
    for item in found:
        if item["state"] == _DAMAGED:
            output.warn(item["problem"])


def use_cluster(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="Which cluster.", autocompletion=known_clusters)
    ],
) -> None:
    """Makes a cluster the current one of this terminal. Commands use it unless they name another.

    Other terminals keep their own. The variable CLUSTERCTL_CLUSTER wins over it.

    \b
      clusterctl cluster use training
    """
    from clusterctl.errors import UsageProblem
    from clusterctl.home import Home
    from runtime._session.current_cluster import VARIABLE
    from runtime._system import settings

    home = Home.find()
    record = home.resolve(name)
    if not home.set_current(record.name):
        raise UsageProblem(
            "there is no terminal session that could remember it", f"Set {VARIABLE}={record.name} instead."
        )
    output.say(f"this terminal's cluster is '{record.name}'")
    other = settings.CURRENT_CLUSTER.get()
    if other and other != record.name:
        output.warn(f"{VARIABLE} names '{other}', and comes before it: unset it")


def export_cluster(
    cluster: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="Which cluster.", autocompletion=known_clusters)
    ],
    file: Annotated[str, typer.Argument(metavar="TARGET", help="The file to write; it must not exist yet.")],
) -> None:
    """Writes all that this machine knows of a cluster to one file, for a colleague or another machine.

    The file has the cluster's record, its YAML, its secret and its own key, and what the YAML itself holds, such as the
    `config` of an external provider. It does not have your SSH key or your cloud's credentials. Anyone who has the file
    controls the cluster, so only you may read it. The cluster's owner and this machine's access stay as they are.

    \b
      clusterctl cluster export training training.cluster
      clusterctl cluster import training.cluster          on the other machine
    """
    import os

    from clusterctl import exports
    from clusterctl.errors import UsageProblem
    from clusterctl.home import Home

    home = Home.find()
    name = home.resolve(cluster).name
    with home.locked(name, "cluster export"):
        record = home.resolve(name)  # as the command before left it
        data = exports.packed(home, record)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageProblem(f"{file} exists already", "Name a file that does not exist yet.") from None
    except OSError as error:
        raise UsageProblem(f"{file} cannot be written: {error.strerror or error}") from error
    try:
        with open(descriptor, "wb") as out:
            out.write(data)
    except BaseException:
        os.unlink(file)  # part of the secrets, of no use
        raise
    output.say(f"cluster '{name}' is exported to {file}")
    output.progress(
        "anyone who has this file controls the cluster: send it over a safe channel, then delete it"
    )
    if record.spec.provider.may_have_secrets:
        output.warn("the file has the provider's `config`, with the credentials that may be in it")
    if key := record.spec.auth.ssh_private_key:
        output.warn(
            f"machines are entered with {key}, which is not in the file: the other side needs its own"
        )


def import_cluster(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `clusterctl cluster export` wrote.")],
) -> None:
    """Makes a cluster known here that another machine exported.

    Commands then work as on the machine that made the cluster, `down` included. The cluster keeps its owner. On a
    cloud you need credentials of your own for `up` and `down`. A cluster of this name that is known here is never
    overwritten.

    \b
      clusterctl cluster import training.cluster
      clusterctl status training
    """
    from clusterctl import exports
    from clusterctl.home import Home
    from clusterctl.providers.ownership import Owner

    home = Home.find()
    export = exports.read(file)
    with home.locked(export.record.name, "cluster import"):
        record = exports.unpack(home, export)
    settings = record.provider_settings
    owner = Owner(settings.get("owner", ""), settings.get("owner_name", ""))
    output.say(f"cluster '{record.name}' of {owner} is known here")
    output.progress(f"use it, e.g.: clusterctl status {record.name}; it is described by {record.spec_file}")


def ssh_config(
    which: Which = None,
    cluster: Cluster = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write them to the state folder, as `up --ssh-config` does.")
    ] = False,
) -> None:
    """Prints entries for ~/.ssh/config, so that `ssh`, `scp` and editors enter the cluster's machines.

    The head has the cluster's name, and each worker adds its id: `ssh training`, `ssh training-3a56d39878`. Print or
    write the entries again after machines have changed. `ssh` enters a machine and not its container, and without the
    environment that `clusterctl attach` gives to programs.

    \b
      clusterctl cluster ssh-config training --write
      clusterctl cluster ssh-config training > config && ssh -F config training
    """
    from . import ssh_entries
    from .opened_cluster import open_cluster

    opened = open_cluster(cluster or which)
    if write:
        ssh_entries.write(opened)
    else:
        output.say(ssh_entries.entries(opened).removesuffix("\n"))


def _record(home: Home, name: str) -> ClusterRecord | dict[str, Any] | None:
    """A cluster's record; its row, if the record is damaged; None: it has just ended."""
    from clusterctl.errors import CliError

    try:
        return home.read(name)
    except CliError as error:
        words = ("cluster_id", "provider", "head", "file")
        return {
            "cluster_name": name,
            "state": _DAMAGED,
            "head_answers": "no",
            "problem": str(error),
            "created_s": None,
            **dict.fromkeys(words, ""),
        }


def _describe(home: Home, record: ClusterRecord | dict[str, Any]) -> dict[str, Any]:
    """One row."""
    from clusterctl.errors import CliError
    from clusterctl.launcher.machines import head_of

    from .opened_cluster import OpenedCluster

    if isinstance(record, dict):
        return record
    head, answers, problem = "", "no", ""
    opened = OpenedCluster(home, record)
    try:
        machine = head_of(opened.machines())
        if machine is not None:
            head = machine.public_address or machine.address
            opened.api().get("/api/version", timeout_s=_ASK_S)
            answers = "yes"
    except CliError as error:
        problem = error.message
    return {
        "cluster_name": record.name,
        "cluster_id": record.cluster_id,
        "state": record.state,
        "provider": record.spec.provider.type_name,
        "head": head,
        "head_answers": answers,
        "problem": problem,
        "created_s": record.created_s,
        "file": record.spec_file,
    }
