"""Channels between two processes: `python scripts/bench/channels.py [--only NAME] [--seconds N]`. One line of JSON.

Measurements: floor (two processes that only ring each other), memory (the channel is in the node's), tcp (on the
loopback).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from figures import Figures, run

from runtime._extension.channels import ChannelAddress, ChannelClosedError, Place, create, open_reader

HERE = Place(b"here", "127.0.0.1", b"secret")
ELSEWHERE = Place(b"elsewhere", "127.0.0.1", b"secret")
DEPTH = 8
TIMEOUT_S = 30.0


def answer(address: ChannelAddress, pipe: Connection, place: Place) -> None:
    """The other process: sends numbers back, and a number for an array."""
    with (
        open_reader(address, "peer", timeout_s=TIMEOUT_S, place=place) as reader,
        create("back", ["bench"], DEPTH, place=place) as writer,
    ):
        pipe.send(writer.address)
        try:
            while True:
                value = reader.take(TIMEOUT_S)
                writer.put(value if isinstance(value, int) else len(value), TIMEOUT_S)
        except ChannelClosedError:
            pass


def rate(seconds: float, once: Callable[[], None], count: int = 1) -> int:
    """How often per second `once` does something `count` times."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        once()
        done += count
    return round(done / (time.perf_counter() - start))


def measure(figures: Figures, name: str, place: Place, seconds: float) -> None:
    """The figures with the other process at `place`."""
    ours, theirs = multiprocessing.Pipe()
    with create("there", ["peer"], DEPTH, place=HERE) as writer:
        process = multiprocessing.get_context("fork").Process(
            target=answer, args=(writer.address, theirs, place)
        )
        process.start()
        with open_reader(ours.recv(), "bench", timeout_s=TIMEOUT_S, place=HERE) as reader:
            array = np.zeros(10 * 10**6 // 8)

            def one() -> None:
                writer.put(1, TIMEOUT_S)
                reader.take(TIMEOUT_S)

            def several(value: object) -> None:
                for _ in range(DEPTH):
                    writer.put(value, TIMEOUT_S)
                for _ in range(DEPTH):
                    reader.take(TIMEOUT_S)

            figures.add(f"{name}: round trips", rate(seconds, one), "/s", "a small value there and back")
            pipelined = rate(seconds, lambda: several(1), DEPTH)
            figures.add(f"{name}: pipelined", pipelined, "/s", f"the same, with {DEPTH} on their way")
            arrays = rate(seconds, lambda: several(array), DEPTH)
            figures.add(f"{name}: arrays of 10 MB", arrays, "/s", "one way, read in place or received")
            writer.close()
            process.join()


def floor(figures: Figures, seconds: float) -> None:
    """Round trips of two processes over eventfds and nothing else."""
    there, back = os.eventfd(0), os.eventfd(0)
    pid = os.fork()
    if pid == 0:
        while os.eventfd_read(there) == 1:
            os.eventfd_write(back, 1)
        os._exit(0)

    def one() -> None:
        os.eventfd_write(there, 1)
        os.eventfd_read(back)

    figures.add("eventfd: round trips", rate(seconds, one), "/s", "two processes that only ring each other")
    os.eventfd_write(there, 2)
    os.waitpid(pid, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measurements whose name contains this")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    options = parser.parse_args()
    figures, seconds = Figures("channels"), options.seconds
    measurements: dict[str, Callable[[], None]] = {
        "floor": lambda: floor(figures, seconds),
        "memory": lambda: measure(figures, "memory", HERE, seconds),
        "tcp": lambda: measure(figures, "TCP", ELSEWHERE, seconds),
    }
    return run(figures, measurements, options.only)


if __name__ == "__main__":
    sys.exit(main())
