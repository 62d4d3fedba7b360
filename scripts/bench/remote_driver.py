#!/usr/bin/env python3
"""Calls per second of a remote driver (`ray://`), side by side with Ray Client.

    scripts/bench/remote_driver.py --address 127.0.0.1:10001                              ours
    RAY_PYTHON/bin/python scripts/bench/remote_driver.py --module ray --address HOST:PORT  Ray's

For ours start `clusterctl start --head`, and set RAY_AUTH_TOKEN_PATH to the file that it names; for Ray
`ray start --head --ray-client-server-port=PORT`. Alternate the two a few times: the machine may be shared.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable

SIZE_BYTES = 100 << 20


def main() -> None:
    """Prints one line per measure and round."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--module", default="runtime", choices=("runtime", "ray"))
    parser.add_argument("--address", required=True, help="host:port")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ray = importlib.import_module(options.module)
    ray.init(f"ray://{options.address}")

    @ray.remote
    class Echo:
        def echo(self, value):  # type: ignore[no-untyped-def]
            return value

    @ray.remote
    def one() -> int:
        return 1

    actor = Echo.remote()
    ray.get([actor.echo.remote(1), one.remote()])
    stored = ray.put(1)

    def actor_calls(count: int) -> None:
        for _ in range(count):
            ray.get(actor.echo.remote(1))

    def tasks(count: int) -> None:
        for _ in range(count):
            ray.get(one.remote())

    def puts(count: int) -> None:
        for _ in range(count):
            ray.put(1)

    def gets(count: int) -> None:
        for _ in range(count):
            ray.get(stored)

    measures: dict[str, tuple[int, Callable[[int], object]]] = {
        "actor calls, one by one": (500, actor_calls),
        "actor calls, a batch": (1000, lambda count: ray.get([actor.echo.remote(1) for _ in range(count)])),
        "tasks, one by one": (200, tasks),
        "tasks, a batch": (1000, lambda count: ray.get([one.remote() for _ in range(count)])),
        "puts of a number": (500, puts),
        "gets of a number": (500, gets),
    }
    for _ in range(options.rounds):
        for name, (count, work) in measures.items():
            began = time.perf_counter()
            work(count)
            print(f"{name:25} {count / (time.perf_counter() - began):12,.0f}/s", flush=True)
        array = bytes(SIZE_BYTES)
        began = time.perf_counter()
        ref = ray.put(array)
        put_at = time.perf_counter()
        ray.get(ref)
        mib = SIZE_BYTES >> 20
        print(f"{'put of 100 MiB':25} {mib / (put_at - began):12,.0f} MiB/s")
        print(f"{'get of 100 MiB':25} {mib / (time.perf_counter() - put_at):12,.0f} MiB/s", flush=True)


if __name__ == "__main__":
    main()
