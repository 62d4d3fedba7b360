"""`clusterctl cluster list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterctl import output

from .options import Json

if TYPE_CHECKING:
    from clusterctl.home import Home

_ASK_S = 3.0
_AT_ONCE = 16
_DAMAGED = "DAMAGED"
"""Instead of a state: the record of the cluster cannot be read."""


def list_clusters(json: Json = False) -> None:
    """Lists the clusters that this machine knows, and whether their heads answer.

    The current one has a star.

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
        found = list(filter(None, pool.map(partial(_describe, home), home.names())))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no machine that does not answer
    current = home.current()
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


def _describe(home: Home, name: str) -> dict[str, Any] | None:
    """One row; None: it has just ended."""
    from clusterctl.errors import CliError
    from clusterctl.launcher.machines import head_of

    from .session import Session

    head, answers, problem = "", "no", ""
    try:
        record = home.read(name)
    except CliError as error:
        words = ("cluster_id", "provider", "head", "file")
        return {
            "cluster_name": name,
            "state": _DAMAGED,
            "head_answers": answers,
            "problem": str(error),
            "created_s": None,
            **dict.fromkeys(words, ""),
        }
    if record is None:
        return None
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
