"""What no autoscaler can undercut on a trace: a bound on the cost and one on the mean waiting time.

Both know the whole trace in advance and no fault, and let work be cut into pieces, so they are below what is possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from traces import Case, Kind

from autoscaler.demand import Shape
from runtime._core.resources import UNIT, to_units

_HOUR = 3600.0


@dataclass(frozen=True)
class Item:
    """`count` times work that holds `shape` for `duration_s`. A group is one item of several shapes."""

    at_s: float
    duration_s: float
    shapes: tuple[tuple[Shape, int], ...]
    count: int

    def amount(self, resource: str) -> int:
        return sum(dict(shape.resources).get(resource, 0) * copies for shape, copies in self.shapes)


def items(case: Case) -> list[Item]:
    """All the work of a trace. What is kept together on one node is one shape."""
    trace, found = case.trace, []
    for entry in [*trace.get("tasks", ()), *trace.get("actors", ())]:
        shape = Shape.of(to_units(entry["resources"]), entry.get("selector"), entry.get("fallbacks", ()))
        found.append(Item(entry["at_s"], entry["duration_s"], ((shape, 1),), entry["count"]))
    for entry in trace.get("groups", ()):
        bundles = [to_units(bundle) for bundle in entry["bundles"]]
        if entry["strategy"] == "STRICT_PACK":
            names = {name for bundle in bundles for name in bundle}
            bundles = [{name: sum(bundle.get(name, 0) for bundle in bundles) for name in names}]
        shapes = tuple((Shape.of(bundle), 1) for bundle in bundles)
        found.append(Item(entry["at_s"], entry["duration_s"], shapes, entry["count"]))
    return found


def least_cost(case: Case) -> float:
    """The cost of the cheapest fractional packing: machines are paid for the seconds in which they work, at their
    lowest price, and work goes in parts to any type that could hold it. No boot, no idle time; machines below
    `min_workers` are paid until the last work can end at the earliest.

    A linear program: least price * x with x machine-seconds per type, y work-seconds per shape and type, sum of y >=
    volume of the shape, resources of y <= those of x, x >= that of the minimum. What is solved is its dual, of which
    every solution is a bound: `worth` of each resource on each type and of a machine of the minimum, together no more
    than the machine's price; a shape is worth what it is on the type where that is least.
    """
    work = items(case)
    volumes: dict[Shape, float] = {}
    for item in work:
        for shape, copies in item.shapes:
            volumes[shape] = volumes.get(shape, 0.0) + item.count * copies * item.duration_s
    shapes = list(volumes)
    names = sorted({name for shape in shapes for name, _ in shape.resources})
    end_s = max((item.at_s + item.duration_s for item in work), default=0.0)
    prices = np.array([_least_price(kind) / _HOUR for kind in case.kinds])
    volume = np.array([volumes[shape] for shape in shapes])
    kept = np.array([kind.least * end_s for kind in case.kinds])
    has = np.array([[to_units(kind.resources).get(name, 0) for name in names] for kind in case.kinds]) / UNIT
    needs = np.array([[dict(shape.resources).get(name, 0) for name in names] for shape in shapes]) / UNIT
    fits = np.array([[shape.fits(to_units(k.resources), k.labels) for k in case.kinds] for shape in shapes])
    if not fits.any(axis=1).all():
        raise ValueError("some work fits on no node type: its cost has no bound")
    worth = _dual(volume, kept, prices, has, needs, fits)
    # The solver's small errors go: what the machines are worth is brought down to their prices.
    excess = ((has * worth[:, :-1]).sum(axis=1) + worth[:, -1]) / prices
    worth /= max(1.0, excess.max())
    each = np.where(fits, needs @ worth[:, :-1].T, np.inf).min(axis=1)
    return float(volume @ each + kept @ worth[:, -1])


def _least_price(kind: Kind) -> float:
    return kind.price if kind.spot is None else min(kind.price, kind.spot)


def _dual(
    volume: np.ndarray,
    kept: np.ndarray,
    prices: np.ndarray,
    has: np.ndarray,
    needs: np.ndarray,
    fits: np.ndarray,
) -> np.ndarray:
    """The best `worth` [type, resource; the minimum last], as the simplex method finds it."""
    (kinds, names), shapes = has.shape, len(volume)
    columns = shapes + kinds * (names + 1)
    rows, limits = [], []
    for kind in range(kinds):
        mine = slice(shapes + kind * (names + 1), shapes + (kind + 1) * (names + 1))
        for shape in np.flatnonzero(fits[:, kind]):
            row = np.zeros(columns)
            row[shape] = 1.0
            row[mine] = [*-needs[shape], 0.0]
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(columns)
        row[mine] = [*has[kind], 1.0]
        rows.append(row)
        limits.append(prices[kind])
    goal = np.zeros(columns)
    goal[:shapes] = volume
    goal[shapes + names :: names + 1] = kept
    found = _most(goal, np.array(rows), np.array(limits))
    return found[shapes:].reshape(kinds, names + 1)


def _most(goal: np.ndarray, rows: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Where goal * v is greatest over rows * v <= limits, v >= 0, with limits >= 0.

    Limits that are equal are moved apart by a millionth, or the method could go round in circles.
    """
    count, columns = rows.shape
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    table = np.zeros((count + 1, columns + count + 1))
    table[:count, :columns] = rows / scale
    table[:count, columns:-1] = np.eye(count)
    table[:count, -1] = limits / limits.max() + 1e-6 * np.random.default_rng(0).random(count)
    table[-1, :columns] = -(goal / scale) / max((goal / scale).max(), 1e-300)
    basis = np.arange(columns, columns + count)
    for _ in range(20 * (count + columns)):  # far more than it takes; a worse solution is a bound too
        column = int(table[-1, :-1].argmin())
        usable = np.flatnonzero(table[:count, column] > 1e-9)
        if table[-1, column] > -1e-9 or not len(usable):
            break
        row = usable[(table[usable, -1] / table[usable, column]).argmin()]
        table[row] /= table[row, column]
        others = table[:, column].copy()
        others[row] = 0.0
        table -= np.outer(others, table[row])
        basis[row] = column
    found = np.zeros(columns + count)
    found[basis] = table[:count, -1] * limits.max()
    return np.maximum(found[:columns], 0.0) / scale


def least_wait(case: Case) -> float:
    """No less than this can work wait in the mean.

    The larger of two: (a) nothing runs before the first machine that the trace gives cause for has booted and was set
    up; (b) with every machine that the maxima allow from then on, and all of them one server that can be split at
    will and does the shortest rest first, which no schedule beats.
    """
    work = items(case)
    number = sum(item.count for item in work)
    if not number:
        return 0.0
    causes = [item.at_s for item in work] + [entry["at_s"] for entry in case.trace.get("requests", ())]
    first_s = 0.0 if any(kind.least for kind in case.kinds) else min(causes)
    ready_s = first_s + case.boot_s + case.setup_s
    boot = sum(max(0.0, ready_s - item.at_s) * item.count for item in work)
    names = {name for item in work for shape, _ in item.shapes for name, _ in shape.resources}
    queue = max((_queueing(work, name, _capacity(case, name), ready_s) for name in names), default=0.0)
    return max(boot, queue) / number


def _capacity(case: Case, resource: str) -> float:
    left, total = case.max_workers, 0.0
    for kind in sorted(case.kinds, key=lambda kind: -to_units(kind.resources).get(resource, 0)):
        count = min(kind.most, left)
        left -= count
        total += count * to_units(kind.resources).get(resource, 0)
    return total


def _queueing(work: list[Item], resource: str, capacity: float, ready_s: float) -> float:
    """The least sum of waiting times before one server of that capacity, shortest rest first."""
    jobs = sorted(_jobs(work, resource, capacity))
    waiting: list[float] = []
    now, flow, next_job = ready_s, 0.0, 0
    while next_job < len(jobs) or waiting:
        if not waiting:
            now = max(now, jobs[next_job][0])
        while next_job < len(jobs) and jobs[next_job][0] <= now:
            heapq.heappush(waiting, jobs[next_job][1])
            flow += now - jobs[next_job][0]
            next_job += 1
        until_s = jobs[next_job][0] if next_job < len(jobs) else float("inf")
        rest_s = heapq.heappop(waiting)
        done_s = min(rest_s, until_s - now)
        flow += done_s * (len(waiting) + 1)
        now += done_s
        if done_s < rest_s:
            heapq.heappush(waiting, rest_s - done_s)
    return max(0.0, flow - sum(item.duration_s * item.count for item in work if item.amount(resource)))


def _jobs(work: list[Item], resource: str, capacity: float) -> Iterator[tuple[float, float]]:
    for item in work:
        amount = item.amount(resource)
        if amount and capacity:
            for _ in range(item.count):
                yield item.at_s, amount * item.duration_s / capacity


def bounds(case: Case) -> Mapping[str, float]:
    """Both."""
    return {"cost": least_cost(case), "wait_s": least_wait(case)}
