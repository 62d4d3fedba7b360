"""`clusterctl simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Json

if TYPE_CHECKING:
    from autoscaler.config import AutoscalerConfig
    from autoscaler.provider import Provider
    from autoscaler.rehearsal.trace import Offered, Trace


def simulate(
    spec: Annotated[str, typer.Argument(metavar="FILE", help="The cluster's YAML.")],
    demand: Annotated[str, typer.Option("--demand", metavar="TRACE", help="The demand over time, as JSON.")],
    svg: Annotated[str | None, typer.Option("--svg", metavar="FILE", help="Draw it, too.")] = None,
    json: Json = False,
    events: Annotated[bool, typer.Option("--events", help="Print what happened when, and why.")] = False,
    max_workers: Annotated[
        list[str] | None,
        typer.Option("--max-workers", metavar="N|TYPE=N", help="Instead of the YAML's; may be repeated."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="TYPE=PRICE", help="Per machine and hour; may be repeated."),
    ] = None,
    boot_s: Annotated[float, typer.Option(min=0, help="Seconds until a new machine runs.")] = 40.0,
    setup_s: Annotated[float, typer.Option(min=0, help="Seconds from then until its node joins.")] = 40.0,
    until: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End then, instead of when all is done.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of all that is drawn; default: the trace's.")] = None,
) -> None:
    """Rehearses a cluster: how it would grow, what would wait, what it would cost.

    The real autoscaler decides, about machines that are made up and on a clock of its own. Nothing is launched.

    \b
      clusterctl simulate cluster.yaml --demand day.json --svg day.svg
      clusterctl simulate cluster.yaml --demand day.json --max-workers gpu=2 --price gpu=4.8
    """
    from pathlib import Path

    from autoscaler.rehearsal.draw import svg as drawn
    from autoscaler.rehearsal.platform import Timing
    from autoscaler.rehearsal.rehearse import rehearse
    from autoscaler.rehearsal.trace import TraceError, load
    from clusterctl import providers, simulate_view
    from clusterctl.errors import CliError, NotFound, UsageProblem
    from clusterctl.home import Home
    from clusterctl.launcher import node_types
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
    provider = providers.make(loaded, loaded.cluster_name, Home.find().provider_settings(loaded.cluster_name))
    config = node_types.autoscaler_config(loaded, loaded.cluster_name, provider.default_resources(), "")
    config = _resized(config, max_workers or ())
    trace = _priced(trace, config, provider, price or ())
    config = _with_spot(config, trace)
    trace = _changed(trace, until, seed)
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


def _resized(config: AutoscalerConfig, limits: Sequence[str]) -> AutoscalerConfig:
    """The configuration with other limits; a minimum above a new maximum gives way."""
    from dataclasses import replace

    for limit in limits:
        name, number = _split(limit, "--max-workers", "8 or gpu=2")
        most = int(number)
        if most != number:
            raise _wrong(limit, "--max-workers", "8 or gpu=2")
        if not name:
            config = replace(config, max_workers=most)
            continue
        _must_exist(name, config, "--max-workers")
        kinds = tuple(
            replace(kind, max_workers=most, min_workers=min(kind.min_workers, most))
            if kind.name == name
            else kind
            for kind in config.node_types
        )
        config = replace(config, node_types=kinds)
    return config


def _priced(trace: Trace, config: AutoscalerConfig, provider: Provider, prices: Sequence[str]) -> Trace:
    """The trace with offers for every type that has a known price: of the command line, the trace, or the
    platform."""
    import msgspec

    from autoscaler.provider import ProviderError
    from autoscaler.rehearsal.trace import Offered
    from clusterctl.errors import from_provider

    offers: dict[str, list[Offered]] = dict(trace.offers)
    if provider.capabilities.prices:
        for kind in config.node_types:
            if kind.name not in offers:
                try:
                    found = provider.offers(kind)
                except ProviderError as error:
                    raise from_provider(error) from error
                offers[kind.name] = [
                    Offered(
                        price=one.price, zone=one.zone, market="spot" if one.market == "spot" else "on-demand"
                    )
                    for one in found
                ]
    for entry in prices:
        name, amount = _split(entry, "--price", "gpu=4.8")
        _must_exist(name, config, "--price")
        offers[name] = [Offered(price=amount)]
    return msgspec.structs.replace(trace, offers=offers)


def _with_spot(config: AutoscalerConfig, trace: Trace) -> AutoscalerConfig:
    """Types that the trace offers on the spot market are taken there first."""
    from dataclasses import replace

    kinds = tuple(
        replace(kind, spot=kind.spot or any(one.market == "spot" for one in trace.offers.get(kind.name, ())))
        for kind in config.node_types
    )
    return replace(config, node_types=kinds)


def _changed(trace: Trace, until: float | None, seed: int | None) -> Trace:
    import msgspec

    return msgspec.structs.replace(
        trace,
        until_s=trace.until_s if until is None else until,
        seed=trace.seed if seed is None else seed,
    )


def _split(text: str, option: str, example: str) -> tuple[str, float]:
    """`gpu=4` -> ("gpu", 4.0); `4` -> ("", 4.0)."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        raise _wrong(text, option, example) from None
    if not 0 <= value < float("inf"):
        raise _wrong(text, option, example)
    return name, value


def _wrong(text: str, option: str, example: str) -> Exception:
    from clusterctl.errors import UsageProblem

    return UsageProblem(
        f"{option} {text}: this is no number, or not for a node type", f"For example {option} {example}."
    )


def _must_exist(name: str, config: AutoscalerConfig, option: str) -> None:
    from clusterctl.errors import UsageProblem

    if config.node_type(name) is None:
        names = ", ".join(kind.name for kind in config.node_types)
        raise UsageProblem(f"{option}: there is no node type '{name}'", f"The cluster has {names}.")
