"""Remote drivers from another host, as a newcomer would try them: one port of the head, large arrays, bad networks."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.hosts import Host, Testbed, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here"),
    pytest.mark.timeout(400),
]
ROOT = Path(__file__).resolve().parents[2]
PORT = 10001
ARRAY_BYTES = 500_000_000
ENDED_S = 150


def start_head(host: Host) -> str:
    """Starts a head there as an operator would; returns the cluster's secret."""
    command = [sys.executable, "-m", "clusterctl", "start", "--head", "--json", "--host", host.address]
    amounts = json.dumps({"CPU": 2, "object_store_memory": 1 << 30})
    options = ["--resources", amounts, "--ray-client-server-port", str(PORT)]
    words = json.loads(host.run(["env", f"PYTHONPATH={ROOT}", *command, *options], 120.0))
    return host.run(["cat", words["secret_file"]]).strip()


class Client:
    """A host whose programs drive the cluster of another."""

    def __init__(self, host: Host, head: Host, secret: str) -> None:
        self._host = host
        self._environment = {
            "PYTHONPATH": str(ROOT),
            "RAY_ADDRESS": f"ray://{head.address}:{PORT}",
            "RAY_AUTH_TOKEN": secret,
        }

    def start(self, program: str, **more: str) -> subprocess.Popen[str]:
        variables = [f"{name}={value}" for name, value in {**self._environment, **more}.items()]
        return self._host.popen(
            ["env", *variables, sys.executable, "-c", textwrap.dedent(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str) -> str:
        return ended(self.start(program))


def ended(process: subprocess.Popen[str], said: str = "") -> str:
    """What a program prints until its end; it must not fail."""
    try:
        out, err = process.communicate(said, timeout=ENDED_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, out + err
    return out


def has_begun(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "begun\n"


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(2) as bed:
        yield bed


@pytest.fixture(scope="module")
def client(bed: Testbed) -> Client:
    head, other = bed.hosts
    return Client(other, head, start_head(head))


def test_the_program_of_the_readme_needs_one_port(client: Client) -> None:
    program = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    peers = """
        from pathlib import Path
        text = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        established = [line.split()[2] for line in text.splitlines() if line.split()[3] == "01"]
        print({int(peer.partition(":")[2], 16) for peer in established})
    """
    out = client.run(program + textwrap.dedent(peers))
    assert out.splitlines() == ["[0, 1, 4, 9, 16, 25, 36, 49, 64, 81] 285", str({PORT})]


def test_a_large_array_both_ways(client: Client) -> None:
    program = f"""
        import hashlib
        import numpy as np
        import runtime as ray
        ray.init()

        @ray.remote
        def look(array):
            return array.nbytes, hashlib.sha256(array).hexdigest()

        sent = np.random.default_rng(7).bytes({ARRAY_BYTES})
        sent = np.frombuffer(sent, np.uint8)
        expected = hashlib.sha256(sent).hexdigest()
        ref = ray.put(sent)
        del sent
        assert ray.get(look.remote(ref)) == ({ARRAY_BYTES}, expected)
        got = ray.get(ref)
        assert got.nbytes == {ARRAY_BYTES}
        assert hashlib.sha256(got).hexdigest() == expected
        print("same")
    """
    assert client.run(program) == "same\n"


CUT = """
    import threading
    import runtime as ray
    ray.init(log_to_driver=False)

    @ray.remote(num_cpus=0)
    class Counter:
        def __init__(self):
            self.n = 0

        def add(self):
            self.n += 1
            return self.n

    counter = Counter.remote()
    kept = ray.put(b"kept" * 100_000)
    assert ray.get(counter.add.remote()) == 1
    print("begun", flush=True)
    done = []
    threading.Thread(target=lambda: done.append(input())).start()
    calls, results = 1, []
    while not done:
        refs = [counter.add.remote() for _ in range(20)]
        calls += 20
        results += ray.get(refs)
    assert ray.get(counter.add.remote()) == calls + 1
    assert results == list(range(2, calls + 1)), "a call was lost, or ran twice"
    assert ray.get(kept) == b"kept" * 100_000
    print("done")
"""


def test_a_cable_pulled_for_ten_seconds_loses_no_call_and_runs_none_twice(
    bed: Testbed, client: Client
) -> None:
    process = client.start(CUT)
    try:
        assert has_begun(process)
        bed.cut_off(bed.hosts[1])
        time.sleep(10)
        bed.plug_in(bed.hosts[1])
        assert ended(process, "\n") == "done\n"
    finally:
        process.kill()


WAITING = """
    import runtime as ray
    from runtime import exceptions
    ray.init(log_to_driver=False)

    @ray.remote(num_cpus=0)
    def forever():
        import time
        time.sleep(1000)

    ref = forever.remote()
    print("begun", flush=True)
    for wait in (lambda: ray.get(ref), lambda: ray.put(1)):
        try:
            wait()
        except exceptions.RaySystemError as error:
            print(error)
"""


def test_a_head_without_power_is_a_clear_error(bed: Testbed) -> None:
    head = bed.boot("h3", "10.93.0.3")
    client = Client(bed.hosts[1], head, start_head(head))
    process = client.start(WAITING, RAY_CLIENT_RECONNECT_GRACE_PERIOD="2")
    try:
        assert has_begun(process)
        bed.end(head)
        first, second = ended(process).splitlines()
    finally:
        process.kill()
    assert "could not be made again within 2 s" in first
    assert "Is the head still up?" in first
    assert second == first
