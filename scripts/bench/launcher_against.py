"""Our launcher and Ray's, side by side: `python scripts/bench/launcher_against.py --against PYTHON`. Needs root.

Three hosts of network namespaces on this machine, entered by SSH, which have Ray already: it is installed for PYTHON.
In turn, on the same hosts: our launcher with our engine, our launcher with Ray (`runtime: {kind: ray}`), and `ray up`
with a file of one's own machines (`provider: {type: local}`). Prints one line of JSON with medians. Ray's launcher runs
ssh and rsync.
"""

from __future__ import annotations

import argparse
import functools
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import Figures, run
from launcher import TIMEOUT_S, Operator, pack_runtime

from tests.polling import eventually
from tests.testbed.hosts import Host
from tests.testbed.sshd import SshTestbed, missing

HOSTS = 3
JOIN_S = 60.0
"""So long after the beginning of `up` workers of Ray's launcher may join."""
_POLL_S = 0.05
OURS = """\
cluster_name: bench
provider: {{type: ssh, head: {head}, workers: [{workers}]}}
auth: {{ssh_user: root, ssh_private_key: {key}}}
{runtime}
"""
RAYS = """\
cluster_name: bench
min_workers: 2
max_workers: 2
provider: {{type: local, head_ip: {head}, worker_ips: [{workers}]}}
auth: {{ssh_user: root, ssh_private_key: /root/key}}
head_start_ray_commands:
  - ray stop
  - ray start --head --port=6379 --autoscaling-config=~/ray_bootstrap_config.yaml
worker_start_ray_commands:
  - ray stop
  - ray start --address=$RAY_HEAD_IP:6379
"""
COUNT = "import ray; ray.init(address='auto'); print(sum(node['Alive'] for node in ray.nodes()))"
RUNS = "[r]aylet|[g]cs_server|[r]ay::|/[r]ay/|[r]ay start|-m [c]lusterctl|-m [r]untime"
LEFT = f"""
pgrep -f '{RUNS}'
find /tmp /root -mindepth 1 -maxdepth 1 -newer /run/before ! -name .ssh
grep -v testbed /root/.ssh/authorized_keys
true
"""
CLEAN = f"""
pkill -KILL -f '{RUNS}'
[ ! -e /run/before ] || find /tmp /root -mindepth 1 -maxdepth 1 -newer /run/before ! -name .ssh -exec rm -rf {{}} +
touch /run/before
"""
Taken = dict[str, list[float]]
"""Figure -> what each round took."""


class RaysOperator:
    """Whoever runs `ray`: on a host of its own, so that nothing of it stays here."""

    def __init__(self, host: Host, python: str) -> None:
        self._host = host
        self._ray = str(Path(python).parent / "ray")

    def seconds(self, *arguments: str) -> float:
        """How long a command takes.

        Raises:
            RuntimeError: it failed.
        """
        began = time.perf_counter()
        self._host.run(
            ["env", "HOME=/root", "sh", "-c", f'cd /root; exec {self._ray} "$@"', "sh", *arguments], TIMEOUT_S
        )
        return time.perf_counter() - began


def prepare(bed: SshTestbed, python: str) -> None:
    """Gives machines what they have elsewhere: a way out, by which Ray finds its address, and in everybody's shell
    Ray's programs and the token that its nodes must have in common."""
    shell = (
        f"export PATH={Path(python).parent}:$PATH RAY_AUTH_MODE=token RAY_AUTH_TOKEN={secrets.token_hex(16)}"
    )
    for host in bed.hosts:
        host.run(["sh", "-c", f"ip route add default dev eth0; echo '{shell}' > /root/.bashrc"])
        host.run(["sh", "-c", CLEAN])


def left(bed: SshTestbed) -> int:
    """Processes, files and keys on the cluster's hosts, when log-ins had a moment to end; processes and files are gone
    afterwards."""

    def counted() -> int:
        return sum(len(host.run(["sh", "-c", LEFT]).splitlines()) for host in bed.hosts[:HOSTS])

    eventually(lambda: counted() == 0, 2.0)
    count = counted()
    for host in bed.hosts[:HOSTS]:
        host.run(["sh", "-c", CLEAN])
    return count


def ours(bed: SshTestbed, name: str, runtime: str, taken: dict[str, Taken]) -> None:
    """One cluster by our launcher."""
    with tempfile.TemporaryDirectory(prefix="launcher-bench-") as folder_name:
        folder = Path(folder_name)
        head, *workers = (host.address for host in bed.hosts[:HOSTS])
        spec = folder / "bench.yaml"
        spec.write_text(OURS.format(head=head, workers=", ".join(workers), key=bed.key_file, runtime=runtime))
        operator = Operator(folder)
        pack_runtime(folder)
        try:
            up_s = operator.seconds("up", "-y", str(spec))
            again_s = operator.seconds("up", "-y", str(spec))
        finally:
            down_s = operator.seconds("down", "-y", str(spec))
    out = taken[name]
    out["up returns"].append(up_s)
    out["nodes that joined"].append(HOSTS)
    out["the last of them"].append(up_s)
    out["up once more"].append(again_s)
    out["down"].append(down_s)
    out["left behind"].append(left(bed))


def rays(bed: SshTestbed, python: str, name: str, taken: dict[str, Taken]) -> None:
    """One cluster by Ray's launcher."""
    head, *workers = bed.hosts[:HOSTS]
    operators = bed.hosts[HOSTS]
    text = RAYS.format(head=head.address, workers=", ".join(host.address for host in workers))
    operators.run(
        [
            "sh",
            "-c",
            'printf %s "$1" > /root/ray.yaml; printf "%s\\n" "$2" > /root/key; chmod 600 /root/key',
            "sh",
            text,
            bed.key_file.read_text().rstrip(),
        ]
    )
    operator = RaysOperator(operators, python)
    began = time.perf_counter()
    try:
        up_s = operator.seconds("up", "-y", "ray.yaml")
        joined, joined_s = await_joined(head, python, began)
        kept_s = operator.seconds("up", "-y", "--no-restart", "ray.yaml")
        again_s = operator.seconds("up", "-y", "ray.yaml")
    finally:
        down_s = operator.seconds("down", "-y", "ray.yaml")
    out = taken[name]
    out["up returns"].append(up_s)
    out["nodes that joined"].append(joined)
    out["the last of them"].append(joined_s or up_s)
    out["up once more"].append(again_s)
    out["up --no-restart once more"].append(kept_s)
    out["down"].append(down_s)
    out["left behind"].append(left(bed))


def await_joined(head: Host, python: str, began: float) -> tuple[int, float]:
    """How many nodes Ray has in the end, and how long after `began` the last worker was set up (0.0: none was), by the
    log of the head's monitor."""
    look = ["sh", "-c", "cat /tmp/ray/session_latest/logs/monitor.out 2>/dev/null | grep -c up-to-date; true"]
    found, last_s = 0, 0.0
    while found < HOSTS - 1 and time.perf_counter() - began < JOIN_S:
        now = int(head.run(look))
        if now > found:
            found, last_s = now, time.perf_counter() - began
        time.sleep(_POLL_S)
    asked = ["bash", "-c", '. /root/.bashrc; "$@"', "bash", python, "-c", COUNT]
    return int(head.run(asked, TIMEOUT_S).split()[-1]), last_s


MEANINGS = {
    "up returns": "",
    "nodes that joined": f"of {HOSTS}, the head included",
    "the last of them": "since the beginning of `up`",
    "up once more": "nothing has changed",
    "up --no-restart once more": "nothing has changed; without --no-restart Ray is started again",
    "down": "",
    "left behind": "processes, files and keys on the three hosts",
}


def report(figures: Figures, taken: dict[str, Taken]) -> None:
    """The medians."""
    for what, meaning in MEANINGS.items():
        for name, each in taken.items():
            if found := each.get(what):
                unit = {"left behind": "things", "nodes that joined": "nodes"}.get(what, "s")
                figures.add(f"{name}: {what}", statistics.median(found), unit, meaning)


def compare(python: str, rounds: int = 3) -> int:
    """Takes all measurements and prints the line."""
    lacking = [tool for tool in ("ssh", "rsync") if shutil.which(tool) is None]
    if reason := missing() or (lacking and f"{', '.join(lacking)} are missing, which Ray's launcher runs"):
        sys.exit(f"{reason}: run this as root on a Linux machine that has them")
    version = subprocess.run(
        [python, "-c", "import ray; print(ray.__version__)"], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    folder = Path(python).parents[1]
    shared = [str(folder)] if folder.is_relative_to(tempfile.gettempdir()) else []
    figures = Figures("launcher_against")
    taken: dict[str, Taken] = defaultdict(lambda: defaultdict(list))
    launchers: dict[str, Callable[..., None]] = {
        "here, the engine": functools.partial(ours, runtime=""),
        f"here, Ray {version}": functools.partial(ours, runtime=f"runtime: {{kind: ray, python: {python}}}"),
        f"`ray` {version}": functools.partial(rays, python=python),
    }
    with (
        tempfile.TemporaryDirectory(prefix="launcher-bench-") as name,
        SshTestbed(HOSTS + 1, Path(name), shared) as bed,
        bed.inside(),
    ):
        prepare(bed, python)
        measurements = {
            f"round {number + 1}: {label}": functools.partial(launch, bed, name=label, taken=taken)
            for number in range(rounds)
            for label, launch in launchers.items()
        }
        return run(figures, {**measurements, "medians": functools.partial(report, figures, taken)})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="PYTHON", required=True, help="one for which Ray is installed")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return compare(os.path.abspath(options.against), options.rounds)


if __name__ == "__main__":
    sys.exit(main())
