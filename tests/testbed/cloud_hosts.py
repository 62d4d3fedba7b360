"""Hosts that come and go as a pretended cloud says: one boots for each of its machines, at that machine's addresses
and with its keys, and ends when the cloud stops or deletes it. What a machine wrote stays for its next boot.
"""

from __future__ import annotations

import email
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.testbed import sshd
from tests.testbed.hosts import OPERATOR, Host, Testbed

_POLL_S = 0.05
_PREPARE = """
set -e
mkdir -p /run/sshd /etc/sudoers.d
grep -q "$(hostname)" /etc/hosts || echo "127.0.1.1 $(hostname)" >> /etc/hosts
[ -e /etc/cloud_host_key ] || ssh-keygen -q -t ed25519 -N '' -f /etc/cloud_host_key
cp -p /etc/cloud_host_key /etc/cloud_host_key.pub /run/
mv /run/cloud_host_key /run/host_key && mv /run/cloud_host_key.pub /run/host_key.pub
"""
# What a machine says to its cloud when it shuts itself down; a date is one of later, which nobody waits for here.
_SHUTDOWN = """
mkdir -p /usr/local/sbin
cat > /usr/local/sbin/shutdown <<'END'
#!/bin/sh
case " $* " in *" now "*) touch /run/shut-down ;; esac
END
chmod 755 /usr/local/sbin/shutdown
"""
_LET_IN = """
set -e
user=$1
id $user >/dev/null 2>&1 || { useradd --create-home --shell /bin/bash $user && usermod -p '*' $user; }
echo "$user ALL=(ALL) NOPASSWD: ALL" > /etc/sudoers.d/$user
home=$(getent passwd $user | cut -d: -f6)
mkdir -p -m 700 $home/.ssh
cat > $home/.ssh/authorized_keys
chown -R $user: $home/.ssh
"""
_RUN_SCRIPT = (
    'script=$(mktemp) && cat > "$script" && chmod 700 "$script" && "$script" >/var/log/boot-script 2>&1'
)
# What a machine's root directory is kept in, for as long as there is the machine.
_DISK = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 disk $1
mkdir $1/changes
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Wanted:
    """What a cloud says of one machine.

    Attributes:
        addresses: its own first, then those that lead to it, too.
        keys: user -> lines for `authorized_keys`.
        is_open: the cloud's firewall lets the operator in; otherwise nothing is answered.
        is_running: or stopped, with its disk kept.
        scripts: what root runs when the machine boots for the first time, once its sshd listens.
    """

    addresses: tuple[str, ...]
    keys: Mapping[str, Sequence[str]]
    is_running: bool = True
    is_open: bool = True
    scripts: Sequence[str] = ()


def scripts_of(user_data: str) -> list[str]:
    """The scripts of user data, as cloud-init finds them: of the text itself, or of its parts."""
    if not user_data.lower().startswith(("content-type:", "mime-version:")):
        return [user_data] if user_data.startswith("#!") else []
    parts = email.message_from_string(user_data).walk()
    found = [part.get_payload(decode=True) for part in parts if part.get_content_subtype() == "x-shellscript"]
    return [text.decode() for text in found if isinstance(text, bytes)]


class CloudHosts(Testbed):
    """A network of hosts that follows a cloud. Machines of any address reach each other there, and `inside` them all.

    Args:
        wanted: the cloud's machines by name; asked again and again, in a thread of its own.
        on_shutdown: is told of each machine that has shut itself down, in that thread.

    Attributes:
        failures: what went wrong with a host, in words; `close` raises them.
    """

    def __init__(
        self,
        wanted: Callable[[], Mapping[str, Wanted]],
        shared: Sequence[str] = (),
        hidden: Sequence[str] = sshd.BARE,
        on_shutdown: Callable[[str], None] = lambda name: None,
    ) -> None:
        if reason := sshd.missing():
            raise RuntimeError(reason)
        self.failures: list[str] = []
        self._wanted = wanted
        self._on_shutdown = on_shutdown
        self._machines: dict[str, _Machine] = {}
        self._count = 0
        self._end = threading.Event()
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        super().__init__(0, shared, hidden)
        self._ip("route", "add", "default", "dev", "bridge")
        for server in _name_servers():
            self._ip("route", "add", "unreachable", server)
        # One thread makes all hosts, for they die with the thread that made them.
        self._thread = threading.Thread(target=self._follow, name="cloud hosts")
        self._thread.start()

    def host(self, name: str) -> Host | None:
        """The host of a machine, if it runs."""
        machine = self._machines.get(name)
        return machine.host if machine else None

    def names(self) -> list[str]:
        """The machines whose hosts run."""
        return sorted(name for name, machine in self._machines.items() if machine.host)

    def close(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        super().close()
        if self.failures:
            failures, self.failures = self.failures, []
            raise RuntimeError("; ".join(failures))

    def reboot(self, name: str) -> None:
        """Cuts the power of a machine, which boots at once from its disk, in another thread."""
        self._requests.put(lambda: self._halt(self._machines[name]))

    # -- inside

    def _follow(self) -> None:
        while not self._end.is_set():
            try:
                self._step(self._wanted())
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                self._end.wait(1.0)
            self._end.wait(_POLL_S)

    def _step(self, wanted: Mapping[str, Wanted]) -> None:
        while not self._requests.empty():
            self._requests.get()()
        for name in [name for name in self._machines if name not in wanted]:
            machine = self._machines.pop(name)
            self._halt(machine)
            _kill(machine.disk)
            self._holders.remove(machine.disk)
        for name, machine in self._machines.items():
            if machine.host is not None and os.path.exists(f"/proc/{machine.host.init}/root/run/shut-down"):
                self._on_shutdown(name)
        for name, what in wanted.items():
            if name not in self._machines:
                self._machines[name] = self._new_machine()
            machine = self._machines[name]
            if what.is_running and machine.host is None:
                self._boot_machine(machine, what)
            elif not what.is_running and machine.host is not None:
                self._halt(machine)
            if machine.host is not None and what.is_open != machine.is_open:
                verb = "del" if what.is_open else "add"
                machine.host.run(["ip", "route", verb, "blackhole", f"{OPERATOR}/32"])
                machine.is_open = what.is_open

    def _new_machine(self) -> _Machine:
        self._count += 1
        name = f"c{self._count}"
        place = os.path.join(self._places, name)
        os.mkdir(place)
        disk = self._hold("--mount", script=_DISK, arguments=(place,))
        assert disk.stdout is not None
        if (words := disk.stdout.readline()) != "ready\n":
            raise RuntimeError(f"no disk for {name}: {words}{disk.stdout.read()}")
        return _Machine(name, place, disk)

    def _boot_machine(self, machine: _Machine, what: Wanted) -> None:
        host = self._boot_from(machine.disk, machine.name, machine.place, what.addresses[0])
        host.run(["sh", "-c", _PREPARE + _SHUTDOWN])
        for user, lines in what.keys.items():
            let_in = host.popen(["sh", "-c", _LET_IN, "sh", user], stdin=subprocess.PIPE, text=True)
            let_in.communicate("".join(f"{line}\n" for line in lines))
            if let_in.returncode:
                raise RuntimeError(f"{user} cannot be let in")
        connect = ["set -e", "ip link set eth0 up"]
        connect += [f"ip address add {address}/32 dev eth0" for address in what.addresses]
        connect += [f"ip route add default dev eth0 src {what.addresses[0]}"]
        connect += [f"ip route add unreachable {server}" for server in _name_servers()]
        host.run(["sh", "-c", "\n".join(connect)])
        sshd.start(host)
        for script in what.scripts if not machine.has_booted else ():
            ran = host.popen(["sh", "-c", _RUN_SCRIPT], stdin=subprocess.PIPE, text=True)
            ran.communicate(script)  # whatever becomes of it: a machine boots also where its script fails
        sshd.start_cron(host)
        machine.has_booted = True
        machine.host = host
        self.hosts.append(host)

    def _boot_from(self, disk: subprocess.Popen[str], name: str, place: str, address: str) -> Host:
        inner = Path(f"/proc/{disk.pid}/task/{disk.pid}/children").read_text().split()[0]
        holder = self._hold_host(name, place, self._hidden, self._shared, disk=f"/proc/{inner}/ns/mnt")
        host = Host(name, address, holder)
        host._booted()
        self._plug(host)
        return host

    def _halt(self, machine: _Machine) -> None:
        if machine.host is None:
            return
        self.hosts.remove(machine.host)
        self._holders.remove(machine.host._holder)
        _kill(machine.host._holder)
        self._unplug(machine.host)
        machine.host, machine.is_open = None, True


@dataclass
class _Machine:
    """`disk`: the process that keeps what the machine wrote."""

    name: str
    place: str
    disk: subprocess.Popen[Any]
    host: Host | None = None
    is_open: bool = True
    has_booted: bool = False


@cache
def _name_servers() -> list[str]:
    """Those of this machine. Nobody answers for them on the hosts' network, which is known at once where they are
    unreachable, and else after the resolver has waited for seconds, at each name."""
    lines = [line.split() for line in Path("/etc/resolv.conf").read_text().splitlines()]
    return [words[1] for words in lines if words[:1] == ["nameserver"] and "." in words[1]]


def _kill(holder: subprocess.Popen[Any]) -> None:
    holder.kill()
    holder.communicate()
