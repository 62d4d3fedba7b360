"""Reinforcement learning through the public API, beside RLlib, Stable-Baselines3 and a plain loop. Prints one line of
JSON.

    python scripts/bench/rllib.py                              # this engine
    python scripts/bench/rllib.py --against OTHER_PYTHON       # and Ray there, Stable-Baselines3 and the loop
    python scripts/bench/rllib.py --only "sampling"            # some of it

Needs torch and gymnasium, in both environments. Stable-Baselines3 is measured where it is installed. Torch has one
thread in each process. A policy that has learned is judged by its greedy return.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from comparison import ANCHORS, PER_S, Comparison, Measuring, Metric
from data_measuring import Timing
from rllib_anchors import Anchors
from rllib_work import RETURN, Sizes, Trainers
from rllib_workloads import Workloads
from store_watch import mark

METRICS = (
    Metric("import", "s", 3, None, "of the module's `rllib`, without torch here"),
    Metric("import and build", "s", 3, None, "of PPO without remote runners, in a fresh process"),
    Metric("build with 2 runners", "s", 8, None, "of PPO, until both have answered"),
    Metric("PPO: training", PER_S, 2, None, "env steps: CartPole, 8 environments, 1,024 steps an update"),
    Metric("PPO: until a mean return of 450", "s", 1.5, None, "mean of two seeds, with the build"),
    Metric("PPO: env steps until then", "steps", None, None),
    Metric("PPO: greedy return", RETURN, None, None, "of 500, ten episodes", at_least=450),
    Metric("PPO: memory", "MiB", 3, None, "of all processes"),
    Metric("checkpoint: save", "s", None, None),
    Metric("checkpoint: restore", "s", None, None),
    Metric("sampling, 8 environments", PER_S, 3.5, None, "env steps, without learning"),
    Metric("sampling, 64 environments", PER_S, 7, None, "likewise"),
    Metric("DQN: training", PER_S, 12, None, "env steps: CartPole, 10,000 of them, an update every 4"),
    Metric("DQN: greedy return", RETURN, None, None, "then"),
    Metric("SAC: training", PER_S, 10, None, "env steps: Pendulum, 4,000 of them, an update each"),
    Metric("SAC: greedy return", RETURN, None, None, "then"),
    Metric("two policies: training", PER_S, 2, None, "env steps: a CartPole for each of two agents"),
    Metric("2 runners, PPO: training", PER_S, None, None, "env steps"),
    Metric("2 runners, PPO: memory", "MiB", None, None, "of all processes"),
    Metric("a runner killed: lost in the next iteration", "s", 6, None),
    Metric("a runner killed: until both run", "s", 6, None),
    Metric("weights of 10 MB to 2 runners", "ms", 4, None),
    Metric("2 runners, APPO: training", PER_S, 4, None, "env steps"),
)


def measure(m: Measuring, options: argparse.Namespace) -> None:
    """Takes every metric of one engine, or of the anchors."""
    mark()
    timing = Timing(m, options.limit)
    sizes = Sizes(options.scale)
    if m.module == ANCHORS:
        Anchors(timing, sizes).run()
        return
    if m.module == "ray":  # else its workers yield to all that the machine does
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    m.guard(Workloads(timing, Trainers(m.module), sizes).run, "cluster")


def main() -> int:
    comparison = Comparison(__file__, __doc__, METRICS, anchors=True)
    add = comparison.parser.add_argument
    add("--limit", type=int, default=300, help="seconds after which a measurement has failed")
    add("--scale", type=float, default=1.0, help="of the numbers of steps")
    return comparison.run("rllib", measure)


if __name__ == "__main__":
    sys.exit(main())
