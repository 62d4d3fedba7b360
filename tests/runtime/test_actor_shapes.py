"""What handles carry of their actors, read by several threads."""

from __future__ import annotations

import subprocess
import sys

READ_AT_ONCE = """
import sys, threading
import msgspec
from runtime._api.actor_methods import ActorShape, MethodOptions, decode_shape

shape = msgspec.msgpack.encode(ActorShape("A", {"m": MethodOptions()}, True, 0, -1, False))
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)

def read():
    barrier.wait()
    assert decode_shape(shape).methods == {"m": MethodOptions()}

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_may_read_their_first_handle_at_the_same_moment() -> None:
    for _ in range(5):
        assert subprocess.run([sys.executable, "-c", READ_AT_ONCE], timeout=60).returncode == 0
