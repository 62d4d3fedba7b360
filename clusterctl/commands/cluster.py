"""`clusterctl cluster list|use`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterctl import output

from .options import Json, known_clusters

if TYPE_CHECKING:
    from clusterctl.home import ClusterRecord, Home

_ASK_S = 3.0
_AT_ONCE = 16
_DAMAGED = "DAMAGED"
"""Instead of a state: the record of the cluster cannot be read."""


def list_clusters(json: Json = False) -> None:
    """Lists the clusters that this machine knows, and whether their heads answer.

    The current one of this terminal has a star.

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
    """Makes a cluster the current one of this terminal: commands mean it when they name none.

    Other terminals keep theirs. The variable CLUSTERCTL_CLUSTER comes before it.

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

    from .session import Session

    if isinstance(record, dict):
        return record
    head, answers, problem = "", "no", ""
    session = Session(home, record)
    try:
        machine = head_of(session.machines())
        if machine is not None:
            head = machine.public_address or machine.address
            session.api().get("/api/version", timeout_s=_ASK_S)
            answers = "yes"
    except CliError as error:
        problem = error.message
    return {
        "cluster_name": record.name,
        "cluster_id": record.cluster_id,
        "state": record.state,
        "provider": record.spec.provider.__struct_config__.tag,
        "head": head,
        "head_answers": answers,
        "problem": problem,
        "created_s": record.created_s,
        "file": record.spec_file,
    }
