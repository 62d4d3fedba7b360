"""A machine that vanishes without a word: no connection closes, nothing is refused, there is only silence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.polling import eventually
from tests.testbed.hosts import Host, Testbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")
ROOT = str(Path(__file__).resolve().parents[2])

_DRIVER = """
import sys, time
import runtime as ray

ray.init(address=sys.argv[1], log_to_driver=False)

@ray.remote(max_retries=1)
def where(started, release):
    import os, socket, time
    open(os.path.join(started, socket.gethostname()), "w").close()
    while socket.gethostname() == "h2" and not os.path.exists(release):
        time.sleep(0.01)
    return socket.gethostname()

@ray.remote(resources={"h2": 1}, num_cpus=0)
class There:
    def host(self):
        import socket
        return socket.gethostname()

there = There.remote()
assert ray.get(there.host.remote()) == "h2"
work = where.options(label_selector={"host": "!in(h1)"}, fallback_strategy=[{"label_selector": {"host": "h1"}}])
moved = work.remote(sys.argv[2], sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
print(ray.get(moved), flush=True)
try:
    ray.get(there.host.remote())
except ray.exceptions.ActorDiedError as error:
    print("died", flush=True)
print([node["Alive"] for node in ray.nodes() if "h2" in node["Resources"] or not node["Alive"]], flush=True)
"""


def start(host: Host, *arguments: str) -> str:
    """Starts a head or a worker there, as an operator would; returns what it says."""
    command = [sys.executable, "-m", "clusterctl", "start", "--json", "--host", host.address]
    amounts = json.dumps({"CPU": 1, host.name: 1, "object_store_memory": 1 << 27})
    labels = json.dumps({"host": host.name})
    return host.run(
        ["env", f"PYTHONPATH={ROOT}", *command, "--resources", amounts, "--labels", labels, *arguments], 120.0
    )


def agents(host: Host) -> str:
    return host.run(["sh", "-c", "pgrep -f 'runtime[.]_node' || true"]).strip()


def test_a_host_that_is_cut_off_is_dead_and_its_work_goes_elsewhere(tmp_path: Path) -> None:
    with Testbed(2, sorted({ROOT, str(tmp_path), sys.prefix})) as bed:
        one, two = bed.hosts
        words = json.loads(start(one, "--head"))
        secret = tmp_path / "secret"
        secret.touch(0o600)
        secret.write_text(one.run(["cat", words["secret_file"]]))
        start(two, "--address", words["control_address"], "--secret-file", str(secret))
        started = tmp_path / "started"
        started.mkdir()
        program = [
            sys.executable,
            "-c",
            _DRIVER,
            words["control_address"],
            str(started),
            str(tmp_path / "release"),
        ]
        driver = one.popen(
            ["env", f"PYTHONPATH={ROOT}", *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert driver.stdout.readline() == "ready\n"
            assert eventually(lambda: (started / "h2").exists())
            assert agents(two)
            bed.cut_off(two)
            out, _ = driver.communicate("go\n", timeout=120)
            assert out.splitlines() == ["h1", "died", "[False]"]
            # The other side knows nothing of a cluster that goes on without it, and ends.
            assert eventually(lambda: not agents(two))
        finally:
            driver.kill()
            driver.communicate()
