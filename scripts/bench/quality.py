"""How well the autoscaler decides: cost and waiting time on many demand traces (traces.py), against Ray's autoscaler in
the same simulated world and against bounds (bounds.py). Prints one line of JSON.

    python scripts/bench/quality.py                              ours and the bounds
    python scripts/bench/quality.py --against PYTHON             with Ray, which is installed for PYTHON
    python scripts/bench/quality.py --against PYTHON --table     and writes the table into docs/autoscaler.md

The world is that of `clusterctl simulate`: the same machines, boot times, faults and scheduler for both. Ray is its own
reconciler, instance table and `ResourceDemandScheduler` with the same limits, idle timeout and upscaling speed. It is
asked as often as ours, after a refusal every 5 s; left to itself it would look every 5 s in any case (--ray-tick 5).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec
from bounds import bounds, items
from figures import ROOT, Figures, run
from ray_decider import RayDecider, as_ray_has_it
from traces import Case, cases

from autoscaler.config import AutoscalerConfig
from autoscaler.provider import NodeType
from autoscaler.rehearsal.rehearse import Summary, rehearse
from autoscaler.rehearsal.trace import Trace, check
from autoscaler.rehearsal.world import Timing

PAGE = ROOT / "docs" / "autoscaler.md"
BEGIN, END = "<!-- table: scripts/bench/quality.py -->", "<!-- end of table -->"
MARGIN = 0.02
"""Differences below this share count as none."""


@dataclass(frozen=True)
class Side:
    """What a trace came to under one autoscaler.

    Attributes:
        wait_s: of all work together, by piece of work; what lost its node waited twice.
        wait_p95_s: of all that began.
    """

    cost: float
    wait_s: float
    wait_p95_s: float
    unserved: int
    cpu_s: float

    @classmethod
    def of(cls, case: Case, summary: Summary, cpu_s: float) -> Side:
        waited = summary.waited["all"]
        pieces = sum(item.count for item in items(case))
        unserved = sum(entry.count for entry in summary.unserved)
        return cls(summary.cost, waited.mean_s * waited.count / pieces, waited.p95_s, unserved, cpu_s)


@dataclass(frozen=True)
class Row:
    """One trace: ours, the bounds, and Ray's if it was asked."""

    name: str
    about: str
    ours: Side
    least_cost: float
    least_wait_s: float
    ray: Side | None = None


def config_of(case: Case) -> AutoscalerConfig:
    """The case's cluster. Its head holds no work."""
    kinds = [
        NodeType(
            kind.name,
            kind.resources,
            kind.labels,
            min_workers=kind.least,
            max_workers=kind.most,
            spot=kind.spot is not None,
            zones=kind.zones,
        )
        for kind in case.kinds
    ]
    return AutoscalerConfig(
        case.name,
        "quality",
        (NodeType("head"), *kinds),
        "head",
        case.max_workers,
        upscaling_speed=case.upscaling_speed,
        idle_timeout_s=case.idle_timeout_s,
    )


def trace_of(case: Case) -> Trace:
    """The case's trace with what its node types cost."""
    offers = {}
    for kind in case.kinds:
        markets = [(kind.market, kind.price), *([("spot", kind.spot)] if kind.spot is not None else [])]
        offers[kind.name] = [
            {"price": price, "zone": zone, "market": market}
            for market, price in markets
            for zone in kind.zones or ("",)
        ]
    trace = msgspec.convert({**case.trace, "offers": offers}, Trace)
    check(trace)
    return trace


def timing_of(case: Case) -> Timing:
    return Timing(boot_s=case.boot_s, setup_s=case.setup_s)


def of_ours(case: Case) -> Side:
    """The case under our autoscaler."""
    began = time.process_time()
    summary = rehearse(config_of(case), trace_of(case), timing=timing_of(case)).summary
    return Side.of(case, summary, time.process_time() - began)


def of_ray(case: Case, python: str, tick_s: float) -> Side:
    """The case under Ray's."""
    same = as_ray_has_it(case)
    config = config_of(same)
    decider = RayDecider(python, same, config.node_types, tick_s or case.ray_tick_s)
    try:
        summary = rehearse(config, trace_of(same), decider, timing=timing_of(same)).summary
    finally:
        decider.close()
    return Side.of(case, summary, decider.cpu_s)


def compare(case: Case, python: str | None, tick_s: float) -> Row:
    """The case under each."""
    least = bounds(case)
    ray = of_ray(case, python, tick_s) if python else None
    return Row(case.name, case.about, of_ours(case), least["cost"], least["wait_s"], ray)


# ---------------------------------------------------------------- what it comes to


def add_figures(figures: Figures, rows: Sequence[Row]) -> None:
    """The traces together."""
    figures.add("traces", len(rows), "traces", cases=[asdict(row) for row in rows])
    ours = [row.ours for row in rows]
    figures.add("unserved", sum(side.unserved for side in ours), "requests", at_most=0)
    bound = statistics.geometric_mean([row.ours.cost / row.least_cost for row in rows])
    figures.add(
        "cost against the bound", bound, "times", "geometric mean; the bound has no boot and no idle time"
    )
    pairs = [(row.ours, row.ray) for row in rows if row.ray is not None]
    if not pairs:
        return
    cost, wait = against_ray(pairs)
    figures.add("cost against Ray", cost, "times", "geometric mean", at_most=1.0)
    figures.add("waiting against Ray", wait, "times", "likewise, of the mean wait and a second", at_most=1.0)
    compared = [row for row in rows if row.ray is not None]
    dearer = [row.name for row in compared if row.ray and is_dearer(row.ours, row.ray)]
    slower = [row.name for row in compared if row.ray and is_slower(row.ours, row.ray)]
    figures.add("dearer than Ray", len(dearer), "traces", "by more than 2 %", names=dearer)
    figures.add(
        "slower than Ray", len(slower), "traces", "mean waiting, by more than 2 % and 1 s", names=slower
    )
    beaten = [row.name for row in compared if row.ray and is_beaten(row.ours, row.ray)]
    figures.add(
        "beaten by Ray", len(beaten), "traces", "worse in one, better in none", at_most=0, names=beaten
    )
    figures.add("unserved under Ray", sum(ray.unserved for _, ray in pairs), "requests")


def against_ray(pairs: Sequence[tuple[Side, Side]]) -> tuple[float, float]:
    """Cost and waiting, ours by Ray's, as geometric means. A second is added to each wait: some are zero."""
    cost = statistics.geometric_mean([ours.cost / ray.cost for ours, ray in pairs])
    wait = statistics.geometric_mean([(ours.wait_s + 1.0) / (ray.wait_s + 1.0) for ours, ray in pairs])
    return cost, wait


def is_dearer(one: Side, other: Side) -> bool:
    return one.cost > other.cost * (1 + MARGIN)


def is_slower(one: Side, other: Side) -> bool:
    return one.wait_s > other.wait_s * (1 + MARGIN) + 1.0


def is_beaten(ours: Side, ray: Side) -> bool:
    """Whether ours is dearer or slower and gained nothing by it."""
    worse = is_dearer(ours, ray) or is_slower(ours, ray)
    return worse and not is_dearer(ray, ours) and not is_slower(ray, ours)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    head = [
        "trace",
        "cost",
        "Ray's",
        "bound",
        "mean wait",
        "Ray's",
        "bound",
        "p95",
        "Ray's",
        "unserved",
        "Ray's",
    ]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in rows:
        ray = row.ray
        lines.append(
            [
                f"{row.name}: {row.about}",
                f"{row.ours.cost:.2f}",
                f"{ray.cost:.2f}" if ray else "",
                f"{row.least_cost:.2f}",
                f"{row.ours.wait_s:.0f} s",
                f"{ray.wait_s:.0f} s" if ray else "",
                f"{row.least_wait_s:.0f} s",
                f"{row.ours.wait_p95_s:.0f} s",
                f"{ray.wait_p95_s:.0f} s" if ray else "",
                str(row.ours.unserved),
                str(ray.unserved) if ray else "",
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def summary(rows: Sequence[Row]) -> str:
    """The rows in a sentence or two."""
    pairs = [(row.ours, row.ray, row.name) for row in rows if row.ray is not None]
    if not pairs:
        return ""
    cost, wait = against_ray([(ours, ray) for ours, ray, _ in pairs])
    dearer = [name for ours, ray, name in pairs if is_dearer(ours, ray)]
    slower = [name for ours, ray, name in pairs if is_slower(ours, ray)]
    cheaper = sum(is_dearer(ray, ours) for ours, ray, _ in pairs)
    faster = sum(is_slower(ray, ours) for ours, ray, _ in pairs)
    return (
        f"Over these {len(pairs)} traces (geometric means): {cost:.2f} times Ray's cost, {wait:.2f} times its waiting. "
        f"Cheaper by more than {MARGIN:.0%}: {cheaper}; dearer: {', '.join(dearer) or 'none'}. "
        f"Faster by more than {MARGIN:.0%} and a second: {faster}; slower: {', '.join(slower) or 'none'}.\n"
    )


def write_table(rows: Sequence[Row], page: Path = PAGE) -> None:
    """Puts the table between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page} has no place for the table: {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n{summary(rows)}\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="PYTHON", help="one in whose environment Ray is installed")
    parser.add_argument("--only", default="", help="only the traces whose name contains this")
    parser.add_argument("--ray-tick", type=float, default=0.0, help="Ray looks every so many seconds")
    parser.add_argument("--table", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    chosen = {name: case for name, case in cases().items() if options.only in name}
    if not chosen:
        parser.error(f"no trace is called so; there are {', '.join(cases())}")
    if options.table and (options.only or not options.against):
        parser.error("the table is of all traces, and against Ray")
    figures = Figures("quality")
    rows: list[Row] = []

    def measure(case: Case) -> None:
        rows.append(compare(case, options.against, options.ray_tick))

    def conclude() -> None:
        add_figures(figures, rows)
        if options.table:
            write_table(rows)

    steps = {name: partial(measure, case) for name, case in chosen.items()}
    return run(figures, {**steps, "in all": conclude})


if __name__ == "__main__":
    sys.exit(main())
