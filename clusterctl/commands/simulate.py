"""`clusterctl simulate`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import Json


def simulate(
    spec: Annotated[str, typer.Argument(metavar="FILE", help="The cluster's YAML.")],
    demand: Annotated[str, typer.Option("--demand", metavar="TRACE", help="The demand over time, as JSON.")],
    svg: Annotated[str | None, typer.Option("--svg", metavar="FILE", help="Draw the result as SVG.")] = None,
    json: Json = False,
    events: Annotated[bool, typer.Option("--events", help="Print what happened when, and why.")] = False,
    max_workers: Annotated[
        list[str] | None,
        typer.Option("--max-workers", metavar="N|TYPE=N", help="Override the YAML. May be repeated."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="TYPE=PRICE", help="Price per machine and hour. May be repeated."),
    ] = None,
    boot_s: Annotated[float, typer.Option(min=0, help="Seconds until a new machine runs.")] = 40.0,
    setup_s: Annotated[float, typer.Option(min=0, help="Seconds from then until its node joins.")] = 40.0,
    until: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End at this time instead of when all work is done."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed. Default: the trace's.")] = None,
) -> None:
    """Simulates a cluster: how it would grow, what would wait, what it would cost.

    Runs the real autoscaler on simulated machines and a simulated clock. Nothing is launched.

    \b
      clusterctl simulate cluster.yaml --demand day.json --svg day.svg
      clusterctl simulate cluster.yaml --demand day.json --max-workers gpu=2 --price gpu=4.8
    """
    from pathlib import Path

    import msgspec

    from autoscaler.rehearsal.draw import svg as drawn
    from autoscaler.rehearsal.platform import Timing
    from autoscaler.rehearsal.rehearse import rehearse
    from autoscaler.rehearsal.trace import TraceError, load
    from clusterctl import simulate_view, sizing
    from clusterctl.errors import CliError, NotFound, UsageProblem
    from clusterctl.home import Home
    from clusterctl.launcher import node_types
    from clusterctl.providers import registry
    from clusterctl.spec import overrides
    from clusterctl.spec.load import load_file

    loaded = load_file(spec)
    try:
        trace = load(demand)
    except TraceError as error:
        raise UsageProblem(f"{demand}: {error}", "docs/simulate.md describes traces.") from None
    except FileNotFoundError:
        raise NotFound(f"there is no file {demand}", "docs/simulate.md describes traces.") from None
    except OSError as error:
        raise UsageProblem(f"{demand} cannot be read: {error.strerror or error}") from None
    provider = registry.make(loaded, loaded.cluster_name, Home.find().provider_settings(loaded.cluster_name))
    loaded = overrides.resized(loaded, max_workers or ())
    config = node_types.autoscaler_config(loaded, loaded.cluster_name, provider.default_resources(), "")
    trace = sizing.priced(trace, config, provider, price or ())
    trace = msgspec.structs.replace(
        trace,
        until_s=trace.until_s if until is None else until,
        seed=trace.seed if seed is None else seed,
    )
    config = sizing.with_spot(config, trace)
    try:
        result = rehearse(config, trace, timing=Timing(boot_s=boot_s, setup_s=setup_s))
    except TraceError as error:
        raise UsageProblem(f"{demand}: {error}", f"The node types are those of {spec}.") from None
    if svg is not None:
        try:
            Path(svg).write_text(drawn(result), encoding="utf-8")
        except OSError as error:
            raise CliError(f"{svg} cannot be written: {error.strerror or error}") from None
    if json:
        output.as_json(simulate_view.as_builtins(result))
        return
    if events:
        for line in simulate_view.events(result.events):
            output.say(line)
        output.say()
    for line in simulate_view.render(result, loaded.cluster_name):
        output.say(line)
