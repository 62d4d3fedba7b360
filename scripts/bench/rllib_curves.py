"""Learning curves beside Stable-Baselines3 with the same hyperparameters: returns by env steps, five seeds.

    python scripts/bench/rllib_curves.py --sb3 PYTHON --write docs     # all tasks: docs/rllib-curves.svg and .json
    python scripts/bench/rllib_curves.py --sb3 PYTHON --only cartpole --seeds 2
    python scripts/bench/rllib_curves.py --draw docs                   # only the drawing, from the file

PYTHON: of an environment with Stable-Baselines3, torch and the same gymnasium. A task passes when our median return of
the last quarter of its steps is not below theirs less a standard error of theirs. Prints a line for each task.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import progress
from rllib_curves_drawing import draw
from rllib_curves_tasks import OURS, SB3, TASKS, returns_of

POINTS = 24
Curve = list[tuple[int, float]]  # (env steps, mean return of the last episodes)


def run(python: str, side: str, task: str, seed: int) -> Curve:
    """One training, in a process of its own."""
    command = [python, __file__, "--one", side, task, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise RuntimeError(f"{task} of {side} with seed {seed} failed: {done.stderr[-2000:]}")
    curve = [(int(steps), float(value)) for steps, value in json.loads(done.stdout.splitlines()[-1])]
    progress(f"{task} {side} seed {seed}: {curve[-1]}")
    return curve


def at(curve: Curve, steps: float) -> float:
    """The return at a number of steps: that of the last point before it."""
    value = curve[0][1]
    for taken, mean in curve:
        if taken > steps:
            break
        value = mean
    return value


def summary(curves: list[Curve], total: int) -> list[tuple[int, float, float, float]]:
    """(steps, least, median, most) over the seeds at equal distances."""
    rows = []
    for number in range(1, POINTS + 1):
        steps = total * number // POINTS
        values = [at(curve, steps) for curve in curves]
        rows.append((steps, min(values), statistics.median(values), max(values)))
    return rows


def late(curves: list[Curve], total: int) -> list[float]:
    """For each seed, the mean return over the last quarter of the steps."""
    marks = [total * (3 * POINTS + number) // (4 * POINTS) for number in range(POINTS + 1)]
    return [statistics.mean(at(curve, mark) for mark in marks) for curve in curves]


def judge(ours: list[float], theirs: list[float]) -> tuple[bool, float, float, float]:
    """Whether ours are good enough; our median, theirs, and the standard error of theirs."""
    error = statistics.stdev(theirs) / len(theirs) ** 0.5 if len(theirs) > 1 else 0.0
    own, other = statistics.median(ours), statistics.median(theirs)
    return own >= other - error, own, other, error


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sb3", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--only", default="", help="tasks whose name contains this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--write", metavar="FOLDER", type=Path, help="keep the curves and draw them there")
    parser.add_argument("--draw", metavar="FOLDER", type=Path, help="draw what is kept there")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        side, task, seed = options.one
        print(json.dumps(returns_of(side, TASKS[task], int(seed))), flush=True)
        return 0
    if options.draw:
        redraw(options.draw)
        return 0
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, task in TASKS.items():
            if options.only not in name:
                continue
            jobs: dict[str, list[Any]] = {OURS: [], SB3: []}
            for seed in range(1, min(options.seeds, task.seeds or options.seeds) + 1):
                jobs[OURS].append(pool.submit(run, sys.executable, OURS, name, seed))
                jobs[SB3].append(pool.submit(run, options.sb3, SB3, name, seed))
            curves = {side: [job.result() for job in submitted] for side, submitted in jobs.items()}
            passed, own, other, error = judge(late(curves[OURS], task.steps), late(curves[SB3], task.steps))
            failed += not passed
            print(
                f"{name}: {'passed' if passed else 'FAILED'}: {own:.1f} against {other:.1f} "
                f"(standard error {error:.1f}), {len(curves[OURS])} seeds",
                flush=True,
            )
            if options.write:
                keep(
                    options.write, name, {side: summary(found, task.steps) for side, found in curves.items()}
                )
    return 1 if failed else 0


def keep(folder: Path, name: str, sides: dict[str, Any]) -> None:
    """Adds a task's curves to the file and draws it anew."""
    path = folder / "rllib-curves.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept[name] = sides
    lines = [f"{json.dumps(task)}: {json.dumps(found)}" for task, found in kept.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    redraw(folder)


def redraw(folder: Path) -> None:
    kept = json.loads((folder / "rllib-curves.json").read_text())
    (folder / "rllib-curves.svg").write_text(draw(kept))


if __name__ == "__main__":
    sys.exit(main())
