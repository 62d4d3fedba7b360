"""`clusterctl autostop`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clusterctl import output

from .options import Cluster, Json, Which


def autostop(
    which: Which = None,
    idle_minutes: Annotated[
        float | None, typer.Option("--idle-minutes", "-i", min=0, help="Stop after this idle time.")
    ] = None,
    down: Annotated[
        bool, typer.Option("--down", help="End the cluster for good instead of keeping the head's machine.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Disable autostop.")] = False,
    cluster: Cluster = None,
    json: Json = False,
) -> None:
    """Shows or sets when an idle cluster stops by itself.

    A cluster is idle without jobs, connected programs, waiting work, logins and setups in progress. The head checks
    this, so this machine is not needed. `up` with a changed `autostop` in the YAML overrides this setting.

    \b
      clusterctl autostop                         the setting, and what uses the cluster now
      clusterctl autostop --idle-minutes 30
      clusterctl autostop --cancel
    """
    import msgspec

    from clusterctl.errors import UsageProblem

    from .opened_cluster import open_cluster

    if cancel and (idle_minutes is not None or down):
        raise UsageProblem("--cancel goes with no other option")
    if down and idle_minutes is None:
        raise UsageProblem("--down needs --idle-minutes", "To end the cluster at once: clusterctl down")
    opened = open_cluster(cluster or which)
    if idle_minutes is not None and not down and not opened.provider().capabilities.stop_start:
        raise UsageProblem("machines of this provider cannot be stopped, only ended", "Add --down.")
    api = opened.engine_api()
    if cancel or idle_minutes is not None:
        wanted = {"idle_minutes": idle_minutes, "down": down}
        if idle_minutes is not None:  # first: what may happen is remembered
            opened.may_end_by_itself()
        api.put("/api/autostop", msgspec.json.encode(wanted), timeout_s=10.0)
    state = api.get("/api/autostop", timeout_s=15.0)
    if json:
        output.as_json({"cluster_name": opened.record.name, **state})
        return
    for line in _lines(opened.record.name, state):
        output.say(line)


def _lines(name: str, state: dict[str, Any]) -> list[str]:
    if state["idle_minutes"] is None:
        lines = [f"cluster '{name}' does not stop by itself"]
    else:
        act = "ends for good" if state["down"] else "stops"
        lines = [f"cluster '{name}' {act} when it has been idle for {state['idle_minutes']:g} min"]
    used = [f"it is used: {use}" for use in state["uses"]]
    idle = (
        f"it has been idle for {output.duration(state['idle_s'])}"
        if state["idle_minutes"] is not None
        else ""
    )
    return lines + [f"  {text}" for text in used or [idle or "it is idle"]]
