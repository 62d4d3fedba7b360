"""`clusterctl up`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import DryRun, Json, Yes


def up(
    spec: Annotated[str, typer.Argument(metavar="FILE", help="The cluster's YAML.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for min_workers to join.")] = 600.0,
) -> None:
    """Brings a cluster up, or fits it to a changed YAML.

    It returns when the head and min_workers of every type have joined; otherwise it says which node failed
    at which step. Running it again when nothing has changed does nothing. The cluster becomes the current
    one.

    \b
      clusterctl up cluster-configs/local.yaml
    """
    from clusterctl.errors import CliError, UsageProblem
    from clusterctl.home import Home
    from clusterctl.launcher.up import Up, plan_for
    from clusterctl.spec.load import load_file

    loaded = load_file(spec)
    home = Home.find()
    with home.locked(loaded.cluster_name, "up"):
        run = Up(home, loaded, spec, output.progress, timeout)
        facts_plan = plan_for(run)
        if facts_plan.refusal:
            raise CliError(facts_plan.refusal, facts_plan.advice)
        problems = run.check() if facts_plan.steps else []
        if problems:
            raise UsageProblem("the check before launching found problems:\n" + "\n".join(problems))
        if dry_run:
            lines = [step.describe() for step in facts_plan.steps]
            if json:
                output.as_json({"cluster": loaded.cluster_name, "steps": lines})
            else:
                for line in lines or ["nothing to do: the cluster is up as the YAML says"]:
                    output.say(line)
            return
        if facts_plan.asks and not yes and not output.confirm(f"{facts_plan.asks} Go on?"):
            raise CliError(facts_plan.asks, "Run it with -y to go on.")
        result = run.apply(facts_plan)
    if json:
        output.as_json(
            {
                "cluster": result.record.name,
                "cluster_id": result.record.cluster_id,
                "changed": bool(result.plan.steps),
                "workers": result.workers,
                "api_url": result.record.api_url,
                "seconds": round(result.seconds, 3),
                "steps_s": {name: round(seconds, 3) for name, seconds in result.steps_s.items()},
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
