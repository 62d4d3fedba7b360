"""Real hosts on one machine: each with a network, processes, a name and a root file system of its own. Needs root.

A host is a process that holds its namespaces; a further one holds the bridge between them. Nothing of it is visible
outside, so several test beds do not meet, and all is gone with these processes, even when whoever made them was killed.
The root file system is that of this machine, with whatever a host writes kept in its own memory; /tmp, /run and
/dev/shm are its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

TOOLS = ("ip", "nsenter", "setpriv", "unshare")
NETWORK = "10.93.0"
NETWORK_6 = "fd93::"
OPERATOR = f"{NETWORK}.254"
"""Where hosts see whoever is `inside` the network without being a host."""
_CLONE_NEWNET = 0x40000000
_START_S = 20.0
_DYING = ("setpriv", "--pdeathsig", "KILL")
_UNSHARE = ("unshare", "--fork", "--kill-child")

# Runs as the first process of a host, which adopts and reaps what daemons leave. Arguments: an empty directory to
# mount on, the name, the directories that are empty there (in one word), and the paths that all hosts share.
_INIT = """
set -e
place=$1 name=$2 hidden=$3; shift 3
mount --make-rprivate /
[ -d $place/changes ] || mount -t tmpfs -o mode=755 host $place
mkdir -p $place/changes $place/work $place/root
mount -t overlay -o lowerdir=/,upperdir=$place/changes,workdir=$place/work root $place/root
cd $place/root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
cat proc/sys/kernel/random/uuid > run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
for path in $hidden; do [ ! -d ./$path ] || mount -t tmpfs -o mode=755 hidden ./$path; done
for path in "$@"; do mkdir -p ./$path; mount --bind $path ./$path; done
hostname $name
mkdir -p run/outside
pivot_root . run/outside
cd /
umount -l run/outside
ip link set lo up
echo ready
exec 0<&- 1>&- 2>&-
sleep infinity &
while :; do wait; done
"""


def missing() -> str:
    """Why there can be no test bed here; "" when there can."""
    if os.geteuid():
        return "hosts of network namespaces need root"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{', '.join(lacking)} of util-linux and iproute2 are missing" if lacking else ""


class Host:
    """One host. `address` is its own on the network of its test bed; `init` its first process, as seen here."""

    def __init__(self, name: str, address: str, holder: subprocess.Popen[str]) -> None:
        self.name = name
        self.address = address
        third, fourth = address.split(".")[2:]
        self.address_6 = NETWORK_6 + (fourth if third == "0" else f"{third}:{fourth}")
        self._holder = holder
        self.init = 0

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program there, in the root directory. What it starts ends with the host at the latest."""
        target = ["--target", str(self.init), "--mount", "--uts", "--ipc", "--net", "--pid"]
        return subprocess.Popen(["nsenter", *target, "--wdns=/", "--", *argv], **options)

    def run(self, argv: Sequence[str], timeout_s: float = 60.0) -> str:
        """Runs a program to its end and returns what it wrote.

        Raises:
            RuntimeError: it failed; the message has its last words.
        """
        with self.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise RuntimeError(f"{argv[0]} on {self.name} ended with {process.returncode}: {err[-2000:]}")
        return str(out)

    def _booted(self) -> None:
        assert self._holder.stdout is not None
        words = self._holder.stdout.readline()
        if words != "ready\n":
            raise RuntimeError(f"{self.name} did not come up: {words}{self._holder.stdout.read()}")
        pid = self._holder.pid
        self.init = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


class Testbed:
    """Some hosts h1, h2, ... on one network. A context manager; `close` removes everything.

    Args:
        count: how many hosts there are from the start; `boot` makes more.
        shared: directories of this machine that every host sees in the same place.
        hidden: directories of this machine that are empty on every host.

    Raises:
        RuntimeError: there can be none here, or a host does not come up.
    """

    __test__ = False  # not a test, for all its name

    def __init__(self, count: int, shared: Sequence[str] = (), hidden: Sequence[str] = ()) -> None:
        if reason := missing():
            raise RuntimeError(reason)
        self.hosts: list[Host] = []
        self._shared, self._hidden = shared, hidden
        self._holders: list[subprocess.Popen[str]] = []
        self._places = tempfile.mkdtemp(prefix="testbed-")
        try:
            switch = self._hold("--net", script="ip link set lo up; echo ready; exec sleep infinity")
            assert switch.stdout is not None
            switch.stdout.readline()
            self._network = f"/proc/{switch.pid}/ns/net"
            self._ip("link", "add", "bridge", "type", "bridge")
            self._ip("address", "add", f"{OPERATOR}/24", "dev", "bridge")
            self._ip("address", "add", f"{NETWORK_6}fe/64", "dev", "bridge", "nodad")
            self._ip("link", "set", "bridge", "up")
            for number in range(1, count + 1):
                self._boot(f"h{number}", f"{NETWORK}.{number}")
            for host in self.hosts:
                host._booted()
                self._connect(host, 24)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process of every host. Repeating it does nothing."""
        for holder in self._holders:
            holder.kill()
        for holder in self._holders:
            holder.communicate()
        shutil.rmtree(self._places, ignore_errors=True)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """While it lasts, the calling thread is on the hosts' network (as `OPERATOR`) instead of this machine's,
        with the threads and processes that it starts, and its sockets for good."""
        with open("/proc/thread-self/ns/net", "rb") as before, open(self._network, "rb") as network:
            _enter(network.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def cut_off(self, host: Host) -> None:
        """Pulls the host's cable: it runs on, and nothing reaches it or comes from it."""
        self._ip("link", "set", host.name, "down")

    def plug_in(self, host: Host) -> None:
        """Puts the cable back."""
        self._ip("link", "set", host.name, "up")

    def slow_down(self, host: Host, rate: str) -> None:
        """Nothing reaches the host faster than this, e.g. "8mbit"."""
        shaping = ("root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
        self._on_switch("tc", "qdisc", "replace", "dev", host.name, *shaping)

    def join_network(self, address: str, prefix: int) -> None:
        """Whoever is `inside` has this address, too: hosts may have addresses of its network."""
        self._ip("address", "add", f"{address}/{prefix}", "dev", "bridge")

    def boot(self, name: str, address: str, prefix: int = 24) -> Host:
        """One more host. It ends with the thread that called this, at the latest.

        Args:
            name: at most 15 letters; no other host's.
        """
        host = self._boot(name, address)
        try:
            host._booted()
            self._connect(host, prefix)
        except BaseException:
            self.end(host)
            raise
        return host

    def end(self, host: Host) -> None:
        """Cuts the power of a host for good: all of its processes and files are gone."""
        self.hosts.remove(host)
        self._holders.remove(host._holder)
        host._holder.kill()
        host._holder.communicate()
        self._unplug(host)
        shutil.rmtree(os.path.join(self._places, host.name), ignore_errors=True)

    def _boot(self, name: str, address: str) -> Host:
        place = os.path.join(self._places, name)
        os.mkdir(place)
        holder = self._hold_host(name, place, self._hidden, self._shared)
        host = Host(name, address, holder)
        self.hosts.append(host)
        return host

    def _hold_host(
        self, name: str, place: str, hidden: Sequence[str], shared: Sequence[str], disk: str = ""
    ) -> subprocess.Popen[str]:
        """Boots a host. `disk`: the mount namespace in which `place` has what it wrote earlier."""
        kinds = ("--net", "--pid", "--mount", "--uts", "--ipc")
        arguments = (place, name, " ".join(hidden), *shared)
        return self._hold(*kinds, script=_INIT, arguments=arguments, disk=disk)

    def _plug(self, host: Host) -> None:
        peer = ("name", "eth0", "address", _hardware(host.address), "netns", str(host.init))
        self._ip("link", "add", host.name, "type", "veth", "peer", *peer)
        self._ip("link", "set", host.name, "master", "bridge", "up")

    def _unplug(self, host: Host) -> None:
        """Takes an ended host off the network. It would stay there for minutes, and answer for its addresses: the
        kernel keeps its namespace for as long as connections of its processes owe something to others."""
        enter = ("nsenter", f"--net={self._network}")
        gone = [*enter, "ip", "link", "del", host.name]  # fails where the namespace has gone already
        subprocess.run(
            gone, check=False, timeout=_START_S, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _connect(self, host: Host, prefix: int) -> None:
        self._plug(host)
        host.run(["ip", "address", "add", f"{host.address}/{prefix}", "dev", "eth0"])
        host.run(["ip", "address", "add", f"{host.address_6}/64", "dev", "eth0", "nodad"])
        host.run(["ip", "link", "set", "eth0", "up"])

    def _hold(
        self, *namespaces: str, script: str, arguments: Sequence[str] = (), disk: str = ""
    ) -> subprocess.Popen[str]:
        enter = ("nsenter", f"--mount={disk}", "--wdns=/") if disk else ()
        holder = subprocess.Popen(
            [*_DYING, *enter, *_UNSHARE, *namespaces, "bash", "-c", script, "host", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # a Ctrl-C is for whoever made it, who then ends the hosts
        )
        self._holders.append(holder)
        return holder

    def _ip(self, *arguments: str) -> None:
        self._on_switch("ip", *arguments)

    def _on_switch(self, *command: str) -> None:
        enter = ("nsenter", f"--net={self._network}")
        subprocess.run([*enter, *command], check=True, timeout=_START_S, stdin=subprocess.DEVNULL)


def _hardware(address: str) -> str:
    """The same for the next host of that address, so that nobody remembers another one for it."""
    return ":".join(f"{number:02x}" for number in (2, 0, *map(int, address.split("."))))


def _enter(namespace: int) -> None:
    """`os.setns` of newer Pythons."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")
