"""`clusterctl check`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import Json


def check(
    spec: Annotated[str | None, typer.Argument(metavar="FILE", help="The cluster's YAML.")] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only what needs neither a network nor credentials.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of cluster YAMLs.")] = False,
    json: Json = False,
) -> None:
    """Says what is wrong with a cluster YAML.

    It also says what would keep `up` from working, and launches nothing.

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
    from clusterctl import providers
    from clusterctl.errors import from_provider
    from clusterctl.home import Home
    from clusterctl.launcher import node_types, offline_checks
    from clusterctl.spec.load import cluster_limit, load_file

    try:
        loaded = load_file(spec, on_warning=output.warn)
    except SpecError as error:
        if json:
            wrong = [{"what": line, "advice": "", "fatal": True} for line in error.message.splitlines()]
            output.as_json({"cluster": None, "problems": wrong})
        raise
    provider = providers.make(loaded, loaded.cluster_name, Home.find().provider_settings(loaded.cluster_name))
    kinds = node_types.node_types(loaded, provider.default_resources())
    try:
        problems = offline_checks.problems(loaded, provider, kinds) if offline else provider.check(kinds)
    except ProviderError as error:
        raise from_provider(error) from error
    if json:
        output.as_json(
            {
                "cluster": loaded.cluster_name,
                "problems": [{"what": p.what, "advice": p.advice, "fatal": p.fatal} for p in problems],
            }
        )
    else:
        for problem in problems:
            output.warn(f"{problem.what}. {problem.advice}")
    if any(problem.fatal for problem in problems):
        raise UsageProblem(f"{spec} cannot be brought up")
    if not json:
        rows = [
            (
                kind.name,
                "head" if kind.name == loaded.head_node_type else "",
                kind.min_workers,
                kind.max_workers,
            )
            for kind in kinds
        ]
        output.say(
            f"{spec} is fine: cluster '{loaded.cluster_name}', at most {cluster_limit(loaded)} workers"
        )
        for line in output.table(("node type", "", "min", "max"), rows):
            output.say(f"  {line}")
