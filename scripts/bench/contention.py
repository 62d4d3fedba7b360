"""What happens when several want the same: `python scripts/bench/contention.py [--only NAME]`. One line of JSON.

Measurements: drivers (two on one node), mix (long and short tasks), stalls (a driver that burns CPU in Python).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import Figures, progress, run

import runtime as ray

CPUS = 2
BATCH = 500
STALL_GOAL_S = 0.020
DRIVER_TIMEOUT_S = 60.0
SHORT_S = 0.001


@ray.remote
def nothing(*_args: object) -> float:
    """When it ran, by the clock that all processes of the machine share."""
    return time.monotonic()


@ray.remote
def busy(seconds: float) -> tuple[int, float, float]:
    """Where it ran, and from when to when."""
    began = time.monotonic()
    time.sleep(seconds)
    return os.getpid(), began, time.monotonic()


@ray.remote(num_cpus=0)
class Borrower:
    """Reads what others own."""

    def __init__(self) -> None:
        self.longest = 0.0

    def nothing(self) -> float:
        """When it ran."""
        return time.monotonic()

    def read(self, refs: list[ray.ObjectRef]) -> None:
        """Asks the owner for each of them, and keeps the longest time that took."""
        for ref in refs:
            start = time.monotonic()
            ray.get(ref)
            self.longest = max(self.longest, time.monotonic() - start)

    def slowest(self) -> float:
        """The longest of all."""
        return self.longest


@contextmanager
def cluster() -> Iterator[str]:
    """A local one, warm; its address."""
    context = ray.init(num_cpus=CPUS, log_to_driver=False, logging_level="ERROR")
    try:
        ray.get([nothing.remote() for _ in range(BATCH)])
        yield context.address_info["address"]
    finally:
        ray.shutdown()


# ------------------------------------------------------------ two drivers


def drive(address: str, seconds: float) -> None:
    """A driver of its own: batches of short tasks, from when it is told until the time is over."""
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    ray.get([nothing.remote() for _ in range(BATCH)])
    print("ready", flush=True)
    sys.stdin.readline()
    done, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        ray.get([nothing.remote() for _ in range(BATCH)])
        done += BATCH
    print(json.dumps({"rate": done / (time.monotonic() - start)}), flush=True)
    ray.shutdown()


def together(address: str, count: int, seconds: float) -> list[float]:
    """The rates of `count` drivers that run at the same time."""
    command = [sys.executable, __file__, "--drive", address, "--seconds", str(seconds)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a driver did not start")
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=seconds + DRIVER_TIMEOUT_S)[0] for process in started]
        return [float(json.loads(output)["rate"]) for output in outputs]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def first_batch_beside(address: str, seconds: float) -> float:
    """How long a driver takes to its first results while another has work for all workers."""
    command = [sys.executable, __file__, "--drive", address, "--seconds", str(seconds + DRIVER_TIMEOUT_S)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdout.readline()
        first.stdin.write("go\n")
        first.stdin.flush()
        time.sleep(min(1.0, seconds))  # it is in full swing
        start = time.monotonic()
        ray.get([nothing.remote() for _ in range(BATCH)])
        return time.monotonic() - start
    finally:
        first.kill()
        first.communicate()


def drivers(figures: Figures, seconds: float) -> None:
    """Two drivers with the same work share the node."""
    with cluster() as address:
        [alone] = together(address, 1, seconds)
        first, second = together(address, 2, seconds)
        late = first_batch_beside(address, seconds)
    figures.add("one driver alone", alone, "tasks/s", f"batches of {BATCH} tasks without work")
    figures.add("two drivers: the first", first, "tasks/s", "each with batches of its own")
    figures.add("two drivers: the second", second, "tasks/s")
    figures.add("two drivers: in all", first + second, "tasks/s")
    figures.add(
        "two drivers: lesser share",
        min(first, second) / (first + second),
        "of 0.5",
        "the part of the work that the driver with less got; 0.5 is fair",
        at_least=0.4,
    )
    figures.add(
        "a driver that comes later: its first batch",
        late,
        "s",
        "while another driver, which was first, has work for all workers",
        at_most=2.0,
    )


# ------------------------------------------------------------ long and short tasks


def mix(figures: Figures, rounds: int) -> None:
    """A long task among short ones of the same function: is a worker ever idle while short ones wait?"""
    waits, idles = [], []
    with cluster():
        ray.get([busy.remote(SHORT_S) for _ in range(50)])  # the engine knows this function as a short one
        for _ in range(rounds):
            submitted = time.monotonic()
            refs = [busy.remote(0.5 if number == 20 else SHORT_S) for number in range(200)]
            spans = ray.get(refs)
            waits.append(max(began for _, began, ended in spans if ended - began < 0.5) - submitted)
            idles.append(longest_idle(spans, submitted))
    figures.add(
        "a long task among 199 short ones: the last short one begins",
        statistics.median(waits),
        "s",
        "after its submission; each of the short ones takes 1 ms, the long one 500 ms",
    )
    figures.add(
        "a worker idle while tasks wait",
        max(idles) * 1000,
        "ms",
        f"the longest such stretch in {rounds} rounds",
        at_most=20,
    )


def longest_idle(spans: list[tuple[int, float, float]], submitted: float) -> float:
    """The longest stretch in which one of the workers ran nothing although tasks had not begun."""
    last_begin = max(began for _, began, _ in spans)
    longest = 0.0
    workers: dict[int, list[tuple[float, float]]] = {}
    for pid, began, ended in sorted(spans, key=lambda span: span[1]):
        workers.setdefault(pid, []).append((began, ended))
    for own in workers.values():
        free = own[0][0]  # a worker counts from its first task: what comes before is the granting of leases
        for began, ended in [*own, (last_begin, last_begin)]:
            longest = max(longest, min(began, last_begin) - free)
            free = max(free, ended)
    return longest


# ------------------------------------------------------------ a driver that burns CPU


class Burner(threading.Thread):
    """Computes in Python, in a thread of its own, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped = False

    def run(self) -> None:
        burn(lambda: self.stopped)

    def __enter__(self) -> Burner:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True
        self.join()


def burn(finished: Callable[[], bool]) -> int:
    """Keeps the interpreter busy: no call in here ever waits."""
    total = 0
    while not finished():
        for number in range(2000):
            total += number * number
    return total


def calls_beside(figures: Figures, seconds: float) -> None:
    """One thread computes, another one calls."""
    with cluster():
        actor = Borrower.remote()
        ray.get(actor.nothing.remote())
        for what, call in (("task", nothing.remote), ("actor call", actor.nothing.remote)):
            with Burner():
                times = timed(call, seconds)
            report(
                figures, f"{what}s beside a computing thread", times, "call, run, reply read by the caller"
            )


def timed(call: Callable[[], Any], seconds: float) -> list[float]:
    """How long each call took until its reply was read."""
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or not times:
        start = time.monotonic()
        ray.get(call())
        times.append(time.monotonic() - start)
    return times


def report(figures: Figures, name: str, times: list[float], meaning: str) -> None:
    """The median and the largest."""
    figures.add(f"{name}: median", statistics.median(times) * 1000, "ms", meaning)
    figures.add(f"{name}: largest", max(times) * 1000, "ms", f"of {len(times)}", at_most=STALL_GOAL_S * 1000)


def replies_beside(figures: Figures, count: int) -> None:
    """The main thread computes, and what comes for others has to be served meanwhile."""
    with cluster():
        futures(figures, count)
        stream(figures, count)
        lent(figures, count)


def futures(figures: Figures, count: int) -> None:
    """`ref.future()`: from the end of the task to the callback."""
    late: list[float] = []
    for _ in range(count):
        came = threading.Event()

        def ready(future: Any, came: threading.Event = came) -> None:
            late.append(time.monotonic() - future.result())
            came.set()

        nothing.remote().future().add_done_callback(ready)
        end = time.monotonic() + DRIVER_TIMEOUT_S
        burn(lambda came=came, end=end: came.is_set() or time.monotonic() > end)  # type: ignore[misc]
    report(figures, "a future while the main thread computes", late, "from the task's end to the callback")


def stream(figures: Figures, count: int) -> None:
    """A generator's items, read by another thread."""

    @ray.remote
    def items() -> Iterator[float]:
        for _ in range(count):
            time.sleep(0.01)
            yield time.monotonic()

    late: list[float] = []

    def read() -> None:
        for ref in items.remote():
            began = ray.get(ref)
            late.append(time.monotonic() - began)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    burn(lambda: not reader.is_alive())
    report(figures, "items of a stream beside a computing thread", late, "from `yield` to the reader")


def lent(figures: Figures, count: int) -> None:
    """Objects of this process that a worker reads."""
    borrower = Borrower.remote()
    ray.get(borrower.nothing.remote())
    refs = [ray.put(number) for number in range(count)]
    done = borrower.read.remote(refs)
    end = time.monotonic() + DRIVER_TIMEOUT_S
    finished = done.future()
    burn(lambda: finished.done() or time.monotonic() > end)
    finished.result(DRIVER_TIMEOUT_S)
    figures.add(
        "an object lent by a computing process: largest",
        ray.get(borrower.slowest.remote()) * 1000,
        "ms",
        f"of {count}; a worker asks for a value while its owner's main thread computes",
        at_most=STALL_GOAL_S * 1000,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="the measurements whose name contains this")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="of each measurement with drivers or threads"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of long and short tasks")
    parser.add_argument("--calls", type=int, default=200, help="replies of each kind while one computes")
    parser.add_argument("--drive", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.seconds)
        return 0
    progress(f"contention: {CPUS} CPUs")
    figures = Figures("contention")
    return run(
        figures,
        {
            "drivers": lambda: drivers(figures, options.seconds),
            "mix": lambda: mix(figures, options.rounds),
            "stalls of calls": lambda: calls_beside(figures, options.seconds),
            "stalls of replies": lambda: replies_beside(figures, options.calls),
        },
        options.only,
    )


if __name__ == "__main__":
    sys.exit(main())
