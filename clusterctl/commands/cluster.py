"""`clusterctl cluster list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterctl import output

from .options import Json

if TYPE_CHECKING:
    from .session import Session

_ASK_S = 3.0


def list_clusters(json: Json = False) -> None:
    """Lists the clusters that this machine knows, and whether their heads answer.

    The current one has a star.

    \b
      clusterctl cluster list --json
    """
    import time
    from concurrent.futures import ThreadPoolExecutor

    from clusterctl.home import Home

    from .session import open_session

    home = Home.find()
    sessions = [open_session(name) for name in home.names()]
    if sessions:
        with ThreadPoolExecutor(min(16, len(sessions))) as pool:
            found = list(pool.map(_describe, sessions))
    else:
        found = []
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
            output.duration(time.time() - item["created_s"]),
            item["file"],
        )
        for item in found
    ]
    for line in output.table(("cluster", "state", "provider", "head", "head answers", "age", "file"), rows):
        output.say(line)


def _describe(session: Session) -> dict[str, Any]:
    from clusterctl.errors import CliError
    from clusterctl.launcher.machines import head_of

    record = session.record
    head, answers, problem = "", "no", ""
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
