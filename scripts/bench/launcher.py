"""How fast a cluster comes up on machines of one's own, and goes: `python scripts/bench/launcher.py`. Needs root.

Bare hosts of network namespaces on this machine, entered by SSH: `up` from nothing, a small job, `up` once more and
`down`, all by the command line, and what is left then; medians of some rounds. Prints one line of JSON.
`--hosts 1,3,20` says how many hosts, the head's included. All of them share the cores of this machine; then once more
each has an equal small part of a core (`--each 0.09`) to itself, as machines have cores of their own. And once from far
away: the round trip to each host takes `--far 100` milliseconds. The runtime is packed before, as it is once for each
installed version; what the first `up` after an installation takes is measured by itself (`--first 3` hosts).

`--against PYTHON` measures something else: our launcher and Ray's, as launcher_against.py does.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import functools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import Figures, run

import autoscaler
import clusterctl
import runtime
from clusterctl.artefacts.target import Target
from clusterctl.launcher import shipping
from tests.polling import eventually
from tests.testbed import cores, far
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, connections, missing

_HERE = Target.here() or sys.exit("no machine has a Python like this one")
TIMEOUT_S = 300.0
SHARED = "as all hosts share the cores of one machine"
OWN = "as each host has its own part of a core"
NO_OP_GOAL_S = 1.0
DOWN_GOAL_S = 3.0
ROUNDS = 5
FIRST_ROUNDS = 3
GROWTH_GOAL = 4.0
"""How much longer `up` may take for the most hosts than for one."""
SPEC = """\
cluster_name: bench
provider: {{type: ssh, head: {head}, workers: [{workers}]}}
auth: {{ssh_user: {user}, ssh_private_key: {key}{way}}}
"""
PROGRAM = """\
import runtime

runtime.init()

@runtime.remote
def double(number):
    return 2 * number

print(sum(runtime.get([double.remote(number) for number in range(10)])))
"""


class Operator:
    """Who brings clusters up, with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._env = {**os.environ, "CLUSTERCTL_HOME": str(folder / "home")}
        self._env.pop("PYTHONDONTWRITEBYTECODE", None)  # or each command compiles us anew

    def seconds(self, *arguments: str) -> float:
        """How long a command takes.

        Raises:
            RuntimeError: it failed.
        """
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "clusterctl", *arguments],
            env=self._env,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        took = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(
                f"{arguments[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
            )
        return took


def left_on(host: Host) -> int:
    """Processes of the user, and files and keys that were not there before. A log-in has a moment to end."""
    look = (
        f"pgrep -u {USER} -a | grep -v sshd: ; cd /home/{USER}; find /tmp . -mindepth 1 -newer /run/host_key "
        "! -path './.ssh*'; ls .ssh | grep -vx authorized_keys; grep -v testbed .ssh/authorized_keys; true"
    )
    left: list[str] = []

    def is_empty() -> bool:
        left[:] = host.run(["sh", "-c", look]).splitlines()
        return not left

    eventually(is_empty, 2.0)
    return len(left)


def up_with_own_cores(figures: Figures, took: dict[int, float], count: int, each: float) -> None:
    """How long `up` takes where every host has `each` cores, and no host any of another's."""
    with tempfile.TemporaryDirectory(prefix="launcher-bench-") as name:
        folder = Path(name)
        operator = Operator(folder)
        with SshTestbed(count, folder, hidden=BARE) as bed, bed.inside():
            spec = write_spec(folder, bed)
            pack_runtime(folder)
            try:
                with cores.cores(bed.hosts, each):
                    took[count] = operator.seconds("up", "-y", str(spec))
            finally:
                with contextlib.suppress(RuntimeError):
                    operator.seconds("down", "-y", str(spec))
    words = f"{count} host{'s' if count > 1 else ''} of {each:g} cores"
    figures.add(f"up, {words}", took[count], "s", "each its own")


@dataclass(frozen=True)
class Round:
    """One cluster, from nothing and back, in seconds."""

    up: float
    submit: float
    again: float
    down: float
    left: int
    connections: int


def measure(figures: Figures, took: dict[int, float], counts: Sequence[int], repeats: int) -> None:
    """Clusters of so many hosts, some rounds of all of them, as the machine is not equally fast at all times.

    Args:
        took: how long `up` took, by the number of hosts; filled.
    """
    rounds: dict[int, list[Round]] = {count: [] for count in counts}
    for _ in range(repeats):
        for count in counts:
            rounds[count].append(one_round(count))
    for count in counts:
        took[count] = tell(figures, count, rounds[count])


def tell(figures: Figures, count: int, rounds: Sequence[Round]) -> float:
    """Adds the figures of the clusters of `count` hosts; returns how long `up` took."""
    words = f"{count} host{'s' if count > 1 else ''}"

    def add(what: str, seconds: Callable[[Round], float], note: str = "", goal: float | None = None) -> float:
        middle = statistics.median(map(seconds, rounds))
        figures.add(f"{what}, {words}", middle, "s", note, at_most=goal)
        return middle

    up_s = add("up", lambda one: one.up, "from bare machines until all have joined")
    add("submit", lambda one: one.submit, "a job of ten small tasks, to its result")
    add("up once more", lambda one: one.again, "nothing to do", NO_OP_GOAL_S)
    add("down", lambda one: one.down, "", DOWN_GOAL_S)
    left = max(one.left for one in rounds)
    figures.add(f"left behind, {words}", left, "things", "processes, files and keys on all hosts", at_most=0)
    most = max(one.connections for one in rounds)
    note = "most that a host saw from one machine during `up`"
    figures.add(f"connections, {words}", most, "each", note, at_most=1)
    return up_s


def one_round(count: int) -> Round:
    """On hosts of its own."""
    with tempfile.TemporaryDirectory(prefix="launcher-bench-") as name:
        folder = Path(name)
        (folder / "job.py").write_text(PROGRAM)
        operator = Operator(folder)
        with SshTestbed(count, folder, hidden=BARE) as bed, bed.inside():
            spec = write_spec(folder, bed)
            pack_runtime(folder)
            try:
                up_s = operator.seconds("up", "-y", str(spec))
                seen = [connections(host) for host in bed.hosts]
                job_s = operator.seconds("submit", "job.py")
                again_s = operator.seconds("up", "-y", str(spec))
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    operator.seconds("down", "-y", str(spec))
                raise
            down_s = operator.seconds("down", "-y", str(spec))
            left = sum(left_on(host) for host in bed.hosts)
            return Round(
                up_s, job_s, again_s, down_s, left, max(most for each in seen for most in each.values())
            )


def first_up(figures: Figures, count: int, repeats: int) -> None:
    """How long the first `up` after an installation takes, which packs the runtime; median of some."""
    ups, packings = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="launcher-bench-") as name:
            folder = Path(name)
            operator = Operator(folder)
            compile_packages()
            began = time.perf_counter()
            shipping.packed(_HERE, str(folder / "other cache"), ["ssh"])
            packings.append(time.perf_counter() - began)
            with SshTestbed(count, folder, hidden=BARE) as bed, bed.inside():
                spec = write_spec(folder, bed)
                try:
                    ups.append(operator.seconds("up", "-y", str(spec)))
                finally:
                    with contextlib.suppress(RuntimeError):
                        operator.seconds("down", "-y", str(spec))
    words = f"{count} host{'s' if count > 1 else ''}"
    figures.add(f"first up, {words}", statistics.median(ups), "s", "the first after an installation")
    figures.add("packing the runtime", statistics.median(packings), "s", "which the first `up` does here")


def up_from_far(figures: Figures, count: int, far_ms: float) -> None:
    """How long `up` and `down` take for an operator to whom every answer takes so long."""
    with tempfile.TemporaryDirectory(prefix="launcher-bench-") as name:
        folder = Path(name)
        operator = Operator(folder)
        with SshTestbed(count, folder, hidden=BARE) as bed, bed.inside():
            spec = write_spec(folder, bed, far_ms)
            pack_runtime(folder)
            words = f"{count} host{'s' if count > 1 else ''}, {far_ms:g} ms away"
            try:
                figures.add(f"up, {words}", operator.seconds("up", "-y", str(spec)), "s", "round trip")
                figures.add(f"up once more, {words}", operator.seconds("up", "-y", str(spec)), "s")
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    operator.seconds("down", "-y", str(spec))
                raise
            figures.add(f"down, {words}", operator.seconds("down", "-y", str(spec)), "s")


def growth(figures: Figures, sharing: dict[int, float], own: dict[int, float]) -> None:
    """How much longer `up` takes for the most hosts than for the fewest."""
    fewest, most = min(sharing), max(sharing)
    if fewest == most:
        return
    ratio = sharing[most] / sharing[fewest]
    figures.add(f"up, {most} hosts to {fewest}", ratio, "x", SHARED, at_most=GROWTH_GOAL)
    if own:
        ratio = own[most] / own[fewest]
        figures.add(f"up, {most} hosts to {fewest}, own cores", ratio, "x", OWN, at_most=GROWTH_GOAL)


def write_spec(folder: Path, bed: SshTestbed, far_ms: float = 0) -> Path:
    way = f", ssh_proxy_command: '{far.proxy_command(far_ms)}'" if far_ms else ""
    head, *workers = (host.address for host in bed.hosts)
    spec = folder / "bench.yaml"
    spec.write_text(SPEC.format(head=head, workers=", ".join(workers), user=USER, key=bed.key_file, way=way))
    return spec


def compile_packages() -> None:
    """As an installer does, where the packages are installed from a source tree."""
    for package in (autoscaler, clusterctl, runtime):
        compileall.compile_dir(os.path.dirname(str(package.__file__)), quiet=2)


def pack_runtime(folder: Path) -> None:
    """What the first `up` after an installation does, once for each installed version and not for each cluster."""
    compile_packages()
    shipping.packed(_HERE, str(folder / "home" / "cache"), ["ssh"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="1,3,20", help="how many, with commas between them")
    parser.add_argument("--each", type=float, default=0.09, help="cores of a host; 0: leave that part out")
    parser.add_argument("--far", type=float, default=100.0, help="round trip in ms; 0: leave that part out")
    parser.add_argument(
        "--first", type=int, default=3, help="hosts of the first `up`; 0: leave that part out"
    )
    parser.add_argument(
        "--once", action="store_true", help="measure each thing once: quick, and no figure to rely on"
    )
    parser.add_argument("--against", metavar="PYTHON", help="one for which Ray is installed")
    options = parser.parse_args()
    if options.against:
        import launcher_against

        return launcher_against.compare(os.path.abspath(options.against))
    if reason := missing():
        sys.exit(f"{reason}: run this as root on a Linux machine that has them")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    figures = Figures("launcher")
    sharing: dict[int, float] = {}
    own: dict[int, float] = {}
    counts = sorted(map(int, options.hosts.split(",")))
    measurements: dict[str, Callable[[], None]] = {
        f"{options.hosts} hosts": functools.partial(
            measure, figures, sharing, counts, 1 if options.once else ROUNDS
        )
    }
    if options.first:
        measurements["the first up"] = functools.partial(
            first_up, figures, options.first, 1 if options.once else FIRST_ROUNDS
        )
    if options.each and not cores.missing():
        for count in {counts[0], counts[-1]}:
            measure_it = functools.partial(up_with_own_cores, figures, own, count, options.each)
            measurements[f"{count} hosts with their own cores"] = measure_it
    if options.far:
        for count in counts[:2]:
            measurements[f"{count} hosts far away"] = functools.partial(
                up_from_far, figures, count, options.far
            )
    return run(figures, {**measurements, "growth": functools.partial(growth, figures, sharing, own)})


if __name__ == "__main__":
    sys.exit(main())
