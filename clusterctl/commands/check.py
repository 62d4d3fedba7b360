"""`clusterctl check`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from clusterctl import output

from .options import Json


def check(
    spec: Annotated[str | None, typer.Argument(metavar="FILE", help="The cluster's YAML.")] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only checks that need neither a network nor credentials.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of cluster YAMLs.")] = False,
    json: Json = False,
) -> None:
    """Validates a cluster YAML, and everything that `up` will need.

    Launches nothing.

    \b
      clusterctl check cluster-configs/local.yaml
      clusterctl check --offline cluster.yaml             (in a pipeline, without credentials)
      clusterctl check --schema > cluster.schema.json     (for editors)
    """
    from clusterctl.errors import SpecError, UsageProblem

    if schema:
        from clusterctl.spec.schema import json_schema

        output.as_json(json_schema())
        return
    if spec is None:
        raise UsageProblem("which file is to be checked?", "clusterctl check FILE")
    from autoscaler.provider import ProviderError
    from clusterctl import plan_view
    from clusterctl.errors import from_provider
    from clusterctl.home import Home
    from clusterctl.launcher import costs, node_types, preflight, shipping
    from clusterctl.providers import registry
    from clusterctl.spec.load import cluster_limit, load_file

    try:
        loaded = load_file(spec, on_warning=output.warn)
    except SpecError as error:
        if json:
            wrong = [{"what": line, "advice": "", "fatal": True} for line in error.message.splitlines()]
            output.as_json({"cluster": None, "problems": wrong})
        raise
    home = Home.find()
    name = loaded.cluster_name
    record = home.read(name)  # of a cluster that is there: its own machines and ports are no problem
    provider = (
        registry.make(loaded, record.cluster_id, record.provider_settings)
        if record is not None
        else registry.make(loaded, name, home.provider_settings(name))
    )
    kinds = node_types.node_types(loaded, provider.default_resources())
    estimate = None
    try:
        obtain = partial(shipping.packed, cache=home.cache, extras=provider.head_extras or ())
        problems = preflight.problems(loaded, provider, kinds, obtain, offline)
    except ProviderError as error:
        raise from_provider(error) from error
    if not offline and not any(problem.fatal for problem in problems):
        estimate = costs.estimate(loaded, provider, kinds)
        problems += preflight.unoffered(estimate)
    is_fine = not any(problem.fatal for problem in problems)
    if json:
        found = [{"what": p.what, "advice": p.advice, "fatal": p.fatal} for p in problems]
        value = {"cluster": name, "problems": found}
        output.as_json(value if estimate is None else {**value, **plan_view.costs_as_builtins(estimate)})
    else:
        for problem in problems:
            (output.error if problem.fatal else output.warn)(str(problem))
    if not is_fine:
        raise UsageProblem(f"{spec} cannot be brought up")
    if not json:
        output.say(f"{spec} is fine: cluster '{name}', at most {cluster_limit(loaded)} workers")
        shown = estimate or costs.costs(kinds, loaded.head_node_type, cluster_limit(loaded), None, None)
        for line in plan_view.costs_lines(shown, offline):
            output.say(line)
