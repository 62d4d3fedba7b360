"""Actors whose module is preloaded, and not: `python scripts/bench/warm_workers.py [--only NAME]`. One line of JSON.

Measurements: start (from the creation of an actor to the answer of its first call, which needs the module), memory.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import Figures, run

import runtime
from runtime._extension.workers import preloaded

WORKERS = 4
PLAIN: dict[str, Any] = {}


@runtime.remote(num_cpus=0)
class Uses:
    """An actor that needs a module."""

    def __init__(self, module: str) -> None:
        self._module = module

    def first(self) -> None:
        importlib.import_module(self._module)

    def memory_kib(self) -> dict[int, int]:
        """The share of this process and of its zygote in their memory, in KiB."""
        return {pid: pss_kib(pid) for pid in (os.getpid(), os.getppid())}


def pss_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def first_call_s(module: str, env: dict[str, Any]) -> float:
    began = time.perf_counter()
    actor = Uses.options(runtime_env=env).remote(module)
    runtime.get(actor.first.remote())
    seconds = time.perf_counter() - began
    runtime.kill(actor)
    return seconds


def start(figures: Figures, module: str, rounds: int) -> None:
    """By turns, as the machine may be busy."""
    env = preloaded(module)
    first_call_s("sys", PLAIN)
    figures.add(
        "first call, first of a node",
        first_call_s(module, env),
        "s",
        f"{module} is preloaded: its one import",
    )
    seconds = [(first_call_s(module, PLAIN), first_call_s(module, env)) for _ in range(rounds)]
    plain, warm = (statistics.median(each) for each in zip(*seconds, strict=True))
    figures.add("first call, without", plain, "s", f"the actor imports {module} itself")
    figures.add("first call, preloaded", warm, "s", f"forked from a process that has imported {module}")


def memory(figures: Figures, module: str) -> None:
    """All workers together, with their zygote, divided by their number."""
    for name, env in (("without", PLAIN), ("preloaded", preloaded(module))):
        actors = [Uses.options(runtime_env=env).remote(module) for _ in range(WORKERS)]
        runtime.get([actor.first.remote() for actor in actors])
        found: dict[int, int] = {}
        for each in runtime.get([actor.memory_kib.remote() for actor in actors]):
            found.update(each)
        share = sum(found.values()) / WORKERS / 1024
        meaning = f"PSS of {WORKERS} actors that have {module}, and of their zygote, per actor"
        figures.add(f"memory, {name}", share, "MiB", meaning)
        for actor in actors:
            runtime.kill(actor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measurements whose name contains this")
    parser.add_argument("--module", default="torch", help="what the actors need")
    parser.add_argument("--rounds", type=int, default=7, help="of starts")
    options = parser.parse_args()
    figures = Figures("warm_workers")
    measurements: dict[str, Callable[[], None]] = {
        "start": lambda: start(figures, options.module, options.rounds),
        "memory": lambda: memory(figures, options.module),
    }
    runtime.init(num_cpus=2)
    try:
        return run(figures, measurements, options.only)
    finally:
        runtime.shutdown()


if __name__ == "__main__":
    sys.exit(main())
