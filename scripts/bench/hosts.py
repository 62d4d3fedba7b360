"""How fast the engine is between machines: `python scripts/bench/hosts.py`. Needs root.

Three hosts of network namespaces on this machine: a head with the driver, and two workers, joined as an operator would.
Prints one line of JSON: round trips of tasks and of an actor's calls on another host beside those of a bare socket;
an object from one node to another beside what a bare socket carries; and the same object to two nodes at once.
Rates are medians. On a machine with few cores all hosts share them, and so does the bare socket.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.testbed.hosts import Host, Testbed, missing  # noqa: E402

PORT = 7001
CALLS_S = 2.0
BATCH = 1000
MIB = 1 << 20
START_TIMEOUT_S = 120.0
STORE_BYTES = 1 << 30
MESSAGE = b"x" * 100


# ---------------------------------------------------------------- the bare socket, as the measure


def serve_raw(size_bytes: int) -> None:
    """Answers connections one after the other: "p" echoes short messages, "d" sends `size_bytes` from memory for each
    byte that comes."""
    memory = os.memfd_create("raw")
    os.ftruncate(memory, size_bytes)
    with mmap.mmap(memory, size_bytes) as pages:
        for offset in range(0, size_bytes, mmap.PAGESIZE):
            pages[offset] = 1
    with socket.create_server(("0.0.0.0", PORT)) as listener:
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                kind = connection.recv(1)
                while message := connection.recv(len(MESSAGE)):
                    if kind == b"p":
                        connection.sendall(message)
                        continue
                    sent = 0
                    while sent < size_bytes:
                        sent += os.sendfile(connection.fileno(), memory, sent, size_bytes - sent)


def raw_round_trips(host: str) -> float:
    """Per second, of messages as short as a small task."""
    with socket.create_connection((host, PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"p")

        def once() -> None:
            connection.sendall(MESSAGE)
            left = len(MESSAGE)
            while left:
                left -= len(connection.recv(left))

        return rate(once)


def raw_copies(host: str, size_bytes: int, rounds: int) -> list[float]:
    """Seconds for each copy of `size_bytes` from there into memory here."""
    taken = []
    with socket.create_connection((host, PORT)) as connection, mmap.mmap(-1, size_bytes) as pages:
        connection.sendall(b"d")
        with memoryview(pages) as view:
            for _ in range(rounds + 1):  # the first one makes the pages
                began = time.perf_counter()
                connection.sendall(b"x")
                have = 0
                while have < size_bytes:
                    have += connection.recv_into(view[have:])
                taken.append(time.perf_counter() - began)
    return taken[1:]


def rate(operation: Callable[[], Any], count: int = 1) -> float:
    """Operations per second; `operation` does `count` of them."""
    for _ in range(3):
        operation()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < CALLS_S:
        operation()
        done += count
    return round(done / (time.perf_counter() - began), 1)


# ---------------------------------------------------------------- the driver, on the head's host


def drive(address: str, near: str, size_bytes: int, rounds: int) -> dict[str, Any]:
    """Measures. `near` is the address of the worker host h2, which also runs `serve_raw`."""
    import numpy as np

    import runtime as ray

    ray.init(address=address, log_to_driver=False)

    @ray.remote(num_cpus=0)
    def nothing() -> bytes:
        return b"ok"

    @ray.remote(num_cpus=0)
    class Actor:
        def nothing(self) -> bytes:
            return b"ok"

    @ray.remote(num_cpus=0)
    def make() -> Any:
        return np.ones(size_bytes, dtype=np.uint8)

    @ray.remote(num_cpus=0)
    def take(array: Any) -> int:
        return len(array)

    def on(host: str, remote: Any) -> Any:
        return remote.options(resources={host: 0.001})

    results: dict[str, Any] = {}
    for host in ("h1", "h2", "h3"):
        ray.get(on(host, take).remote(b""))  # the workers have begun
    here, there, other = on("h1", nothing), on("h2", nothing), on("h2", Actor).remote()
    results["raw round trips"] = raw_round_trips(near)
    results["tasks one by one"] = rate(lambda: ray.get(there.remote()))
    results["tasks one by one, own host"] = rate(lambda: ray.get(here.remote()))
    results["tasks in batches"] = rate(lambda: ray.get([there.remote() for _ in range(BATCH)]), BATCH)
    ray.get(other.nothing.remote())
    results["actor calls one by one"] = rate(lambda: ray.get(other.nothing.remote()))
    results["actor calls in batches"] = rate(
        lambda: ray.get([other.nothing.remote() for _ in range(BATCH)]), BATCH
    )

    def fetch() -> float:
        ref = on("h2", make).remote()
        ray.wait([ref], fetch_local=False)
        began = time.perf_counter()
        assert len(ray.get(ref)) == size_bytes
        return time.perf_counter() - began

    def spread(*hosts: str) -> float:
        ref = ray.put(np.ones(size_bytes, dtype=np.uint8))
        began = time.perf_counter()
        ray.get([on(host, take).remote(ref) for host in hosts])
        return time.perf_counter() - began

    first = fetch()
    raw, fetched, one, two = [], [], [], []
    for _ in range(rounds):  # in turn, so that all see the same machine
        raw += raw_copies(near, size_bytes, 1)
        fetched.append(fetch())
        one.append(spread("h2"))
        two.append(spread("h2", "h3"))

    def mib_per_s(taken: list[float], copies: int = 1) -> float:
        return round(copies * size_bytes / MIB / statistics.median(taken), 1)

    results["raw MiB/s"] = mib_per_s(raw)
    results["object MiB/s, into fresh memory"] = mib_per_s([first])
    results["object MiB/s"] = mib_per_s(fetched)
    results["object, share of raw"] = round(results["object MiB/s"] / results["raw MiB/s"], 3)
    results["argument MiB/s, to one node"] = mib_per_s(one)
    results["argument MiB/s, to two nodes, in all"] = mib_per_s(two, 2)
    results["two nodes, time of one"] = round(statistics.median(two) / statistics.median(one), 3)
    ray.shutdown()
    return results


# ---------------------------------------------------------------- the cluster


def start_cluster(bed: Testbed, folder: str) -> str:
    """Starts a head on h1 and a worker on each other host; returns the cluster's address. The test bed ends it."""
    secret = os.path.join(folder, "secret")
    with open(secret, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(os.urandom(32).hex() + "\n")
    head, *workers = bed.hosts
    address = json.loads(_start(head, "--head", "--secret-file", secret))["control_address"]
    for worker in workers:
        _start(worker, "--address", address, "--secret-file", secret)
    return address


def _start(host: Host, *arguments: str) -> str:
    resources = {"CPU": 2, host.name: 1, "object_store_memory": STORE_BYTES}
    command = [sys.executable, "-m", "clusterctl", "start", "--json", "--host", host.address]
    return host.run(
        ["env", f"PYTHONPATH={ROOT}", *command, "--resources", json.dumps(resources), *arguments],
        START_TIMEOUT_S,
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="hosts-bench-")
    shared = {str(ROOT), folder, sys.prefix}
    size, rounds = str(options.mib * MIB), str(options.rounds)
    this = [sys.executable, str(Path(__file__).resolve())]
    try:
        with Testbed(3, sorted(shared)) as bed:
            h1, h2, _ = bed.hosts
            address = start_cluster(bed, folder)
            raw = h2.popen([*this, "--serve-raw", size], stdout=subprocess.PIPE, text=True)
            raw.stdout.readline()
            measured = h1.run([*this, "--drive", address, h2.address, size, rounds], options.timeout)
        raw.communicate()  # its host is gone
        return {"object MiB": options.mib, **json.loads(measured)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=256, help="size of the object")
    parser.add_argument("--rounds", type=int, default=5, help="copies of the object of each kind")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for all measurements")
    parser.add_argument("--serve-raw", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--drive", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_raw:
        serve_raw(options.serve_raw)
    elif options.drive:
        address, near, size, rounds = options.drive
        print(json.dumps(drive(address, near, int(size), int(rounds))))
    elif reason := missing():
        sys.exit(f"{reason}: run this as root on a Linux machine that has them")
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            print(json.dumps(measure(options)))
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
