"""`clusterctl up`."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from clusterctl import output

from .options import DryRun, Name, NoConfigCache, Yes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autoscaler.provider import Problem
    from clusterctl.launcher.costs import Costs
    from clusterctl.launcher.plan import Plan, Restart
    from clusterctl.launcher.up import Up, UpResult
    from clusterctl.progress import Progress

T = TypeVar("T")
READY_S = 600.0


class Agreed(Enum):
    """What the operator has agreed to already."""

    NOTHING = "nothing"
    COSTS = "costs"  # --start: the cluster may cost something, and nothing that runs may end
    ALL = "all"  # -y


def up(
    spec: Annotated[
        str, typer.Argument(metavar="FILE|NAME", help="The cluster's YAML, or the name of a known cluster.")
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON for programs: one object per event, the result last.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for min_workers to join.")] = READY_S,
    cluster_name: Name = None,
    min_workers: Annotated[
        list[str] | None,
        typer.Option("--min-workers", metavar="N|TYPE=N", help="Override the YAML. May be repeated."),
    ] = None,
    max_workers: Annotated[
        list[str] | None,
        typer.Option("--max-workers", metavar="N|TYPE=N", help="Override the YAML. May be repeated."),
    ] = None,
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="Refuse changes that would restart running daemons.")
    ] = False,
    restart_only: Annotated[
        bool,
        typer.Option("--restart-only", help="Restart the daemons without files and setup commands."),
    ] = False,
    ssh_config: Annotated[
        bool, typer.Option("--ssh-config", help="Write entries by which `ssh NAME` enters the machines.")
    ] = False,
    no_config_cache: NoConfigCache = False,
) -> None:
    """Brings a cluster up, or updates it to a changed YAML.

    Prints the plan and its cost, and asks if it costs money. Returns when the head and min_workers of every type have
    joined, or says which node failed at which step. If nothing has changed, it does nothing. The cluster becomes the
    current one of this terminal.

    \b
      clusterctl up cluster-configs/local.yaml
      clusterctl up cluster.yaml --min-workers gpu=2     until the next `up`, which uses the YAML again
    """
    bring_up(
        spec,
        Agreed.ALL if yes else Agreed.NOTHING,
        dry_run=dry_run,
        json=json,
        timeout=timeout,
        cluster_name=cluster_name,
        min_workers=min_workers or (),
        max_workers=max_workers or (),
        no_restart=no_restart,
        restart_only=restart_only,
        ssh_config=ssh_config,
    )


def bring_up(
    spec: str,
    agreed: Agreed,
    *,
    dry_run: bool = False,
    json: bool = False,
    timeout: float = READY_S,
    cluster_name: str | None = None,
    min_workers: Sequence[str] = (),
    max_workers: Sequence[str] = (),
    no_restart: bool = False,
    restart_only: bool = False,
    ssh_config: bool = False,
) -> None:
    """See `up`. `agreed`: what need not be asked."""
    from clusterctl.errors import CliError, UsageProblem
    from clusterctl.home import Home
    from clusterctl.launcher import preflight
    from clusterctl.launcher.cluster import Cluster
    from clusterctl.launcher.plan import Restart
    from clusterctl.launcher.up import Up
    from clusterctl.progress import Progress
    from clusterctl.providers.ssh.hosts import located
    from clusterctl.spec.load import load_file
    from clusterctl.spec.overrides import renamed, resized

    from . import ssh_entries
    from .opened_cluster import OpenedCluster

    spec, cluster_name = _file_of(spec, cluster_name)
    read = located(load_file(spec, on_warning=output.warn))
    if no_restart and restart_only:
        raise UsageProblem("--no-restart and --restart-only contradict each other")
    restart = Restart.NEVER if no_restart else Restart.ONLY if restart_only else Restart.IF_NEEDED
    loaded = resized(renamed(read, cluster_name), max_workers, min_workers)
    home = Home.find()
    with home.locked(loaded.cluster_name, "up"):
        progress = Progress(on_event=output.as_json_line if json else None)
        is_renamed = loaded.cluster_name != read.cluster_name
        run = Up(Cluster(home, loaded, spec, progress, timeout, is_renamed), dry_run)
        if dry_run:
            _rehearse(run, restart, json)
            return
        # First: a key that is missing here would look like one that is refused there.
        _refuse(preflight.files(loaded))
        chosen = run.plan(restart)
        if chosen.refusal:
            raise CliError(chosen.refusal, chosen.advice)
        if chosen.steps:
            _refuse(run.check())
        costs = _costs(run) if chosen.may_buy else None
        if chosen.steps:
            _show(run, chosen, costs, False, json)
        _agree(chosen, costs, agreed)
        with progress:
            result = run.apply(chosen)
    _tell(result, progress, spec, json)
    if ssh_config:
        try:
            ssh_entries.write(OpenedCluster(home, result.record))
        except CliError as error:  # the cluster is up all the same
            output.warn(str(error))


def _file_of(word: str, cluster_name: str | None) -> tuple[str, str | None]:
    """The YAML that is meant, and the name instead of the YAML's: of a known cluster both are remembered."""
    from clusterctl.errors import UsageProblem
    from clusterctl.home import Home

    if word.endswith((".yaml", ".yml")) or os.sep in word or os.path.exists(word):
        return word, cluster_name
    record = Home.find().read(word)
    if record is None:
        return word, cluster_name
    if cluster_name is not None:
        raise UsageProblem(
            f"'{word}' is a known cluster, which --cluster-name cannot rename", "Name its YAML."
        )
    return record.spec_file, record.name if record.is_renamed else None


def _refuse(problems: Sequence[Problem]) -> None:
    from clusterctl.errors import UsageProblem

    for problem in problems:
        if not problem.fatal:
            output.warn(str(problem))
    fatal = [str(problem) for problem in problems if problem.fatal]
    if fatal:
        raise UsageProblem("the check before launching found problems:\n" + "\n".join(fatal))


def _costs(run: Up) -> Costs:
    from clusterctl.errors import UsageProblem
    from clusterctl.launcher.preflight import unoffered

    costs = run.costs()
    fatal = [str(problem) for problem in unoffered(costs) if problem.fatal]
    if fatal:
        raise UsageProblem("\n".join(fatal))
    return costs


def _rehearse(run: Up, restart: Restart, json: bool) -> None:
    """Shows what would be done, also where nobody can be asked what there is.

    Raises:
        CliError: what would keep it from being done.
    """
    from clusterctl import plan_view
    from clusterctl.errors import CliError
    from clusterctl.launcher.plan import UNSEEN

    troubles: list[CliError] = []

    def asked(question: Callable[[], T]) -> T | None:
        try:
            return question()
        except CliError as error:
            troubles.append(error)
            return None

    chosen = asked(lambda: run.plan(restart)) or run.plan(restart, UNSEEN)
    if chosen.refusal:
        raise CliError(chosen.refusal, chosen.advice)
    if chosen.steps:
        asked(lambda: _refuse(run.check()))
    costs = asked(lambda: _costs(run)) if chosen.may_buy else None
    _show(run, chosen, costs, True, json)
    if chosen.may_buy and costs is None and not json:
        for line in plan_view.costs_lines(run.machines(), without_prices=True):
            output.say(line)
    if troubles:
        messages = "\n".join(dict.fromkeys(error.message for error in troubles))
        raise type(troubles[0])(f"it would not get so far:\n{messages}", troubles[0].hint)


def _show(run: Up, chosen: Plan, costs: Costs | None, dry_run: bool, json: bool) -> None:
    """What is about to happen: the result of a dry run, else beside the results."""
    import msgspec

    from clusterctl import plan_view

    before, after = msgspec.to_builtins(run.record.spec), msgspec.to_builtins(run.spec)
    changes = plan_view.changes(before, after) if chosen.steps else []
    if dry_run and json:
        output.as_json_line(plan_view.as_builtins(run.record.name, chosen.steps, costs, changes))
        return
    for line in plan_view.render(run.record.name, chosen.steps, costs, changes):
        (output.say if dry_run else output.progress)(line)


def _agree(chosen: Plan, costs: Costs | None, agreed: Agreed) -> None:
    """Asks what has to be asked. What ends something that may be of use needs a yes; what costs something is asked
    about where somebody is there to answer.

    Raises:
        CliError: the operator does not want it.
    """
    from clusterctl.errors import CliError

    if agreed is Agreed.ALL:
        return
    asks_costs = agreed is not Agreed.COSTS and costs is not None and not costs.is_free
    if not (chosen.asks or (asks_costs and output.somebody_is_there())):
        return
    if not output.confirm(f"{chosen.asks} Go on?".strip()):
        raise CliError(chosen.asks or "nothing was done", "`clusterctl up -y` goes on without asking.")


def _tell(result: UpResult, progress: Progress, spec: str, json: bool) -> None:
    if json:
        output.as_json_line(
            {
                "cluster": result.record.name,
                "cluster_id": result.record.cluster_id,
                "changed": bool(result.plan.steps),
                "workers": result.workers,
                "api_url": result.record.api_url,
                "seconds": round(result.seconds, 3),
                "steps_s": _rounded(result.steps_s),
                "nodes_s": {name: _rounded(spent) for name, spent in progress.spent().items()},
            }
        )
        return
    if not result.plan.steps:
        output.say(f"cluster '{result.record.name}' is up already, as {spec} says: nothing to do")
        return
    parts = ", ".join(f"{name} {output.duration(seconds)}" for name, seconds in result.steps_s.items())
    workers = f"{result.workers} worker{'' if result.workers == 1 else 's'}"
    output.say(
        f"cluster '{result.record.name}' is up: the head and {workers}, in {output.duration(result.seconds)}"
    )
    output.progress(f"  {parts}")
    output.progress(
        "  run a program: clusterctl submit job.py    look: clusterctl status    end it: clusterctl down"
    )


def _rounded(spent: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds, 3) for name, seconds in spent.items()}
