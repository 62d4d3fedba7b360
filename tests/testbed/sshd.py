"""Hosts that are entered by SSH, as one's own machines are: an sshd and a host key each, a person `op` who may
`sudo`, and one key that opens them all. Needs Debian's openssh-server and sudo (`scripts/test` installs them).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.testbed import hosts
from tests.testbed.hosts import OPERATOR, Host, Testbed

USER = "op"
_SSHD = "/usr/sbin/sshd"
_CRON = "/usr/sbin/cron"
_LOG = "/run/sshd.log"

BARE = (
    *("/root", "/opt", "/usr/local", "/usr/lib/python3/dist-packages"),
    *("/usr/lib/python3.11/ensurepip", "/usr/lib/python3.11/venv"),
)
"""What `hidden` takes away so that of Python only Debian's interpreter and its standard library are left: no pip, no
way to make a virtual environment, no package, and nothing of this repository's environment. It is not a minimal root
otherwise: the other programs of this machine are there."""

_PREPARE = """
set -e
useradd --create-home --shell /bin/bash {user}
usermod -p '*' {user}  # no password, and not locked
mkdir -p /etc/sudoers.d /run/sshd
echo "127.0.1.1 $(hostname)" >> /etc/hosts  # as Debian's installer writes it
echo '{user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{user}
for home in /root /home/{user}; do
    mkdir -p -m 700 $home/.ssh
    cat > $home/.ssh/authorized_keys <<'END'
{key}
END
done
chown -R {user}: /home/{user}/.ssh
ssh-keygen -q -t ed25519 -N '' -f /run/host_key
"""


def missing() -> str:
    """Why there can be no such hosts here; "" when there can."""
    if reason := hosts.missing():
        return reason
    lacking = [tool for tool in (_SSHD, "ssh-keygen", "sudo") if shutil.which(tool) is None]
    return f"{', '.join(lacking)} of openssh-server and sudo are missing" if lacking else ""


class SshTestbed(Testbed):
    """A test bed whose hosts answer at port 22.

    Attributes:
        key_file: the private key that opens root and `USER` of all hosts, in `folder`.
    """

    def __init__(
        self, count: int, folder: Path, shared: Sequence[str] = (), hidden: Sequence[str] = ()
    ) -> None:
        if reason := missing():
            raise RuntimeError(reason)
        self.key_file = folder / "key"
        if not self.key_file.exists():
            new_key(self.key_file)
        super().__init__(count, shared, hidden)
        try:
            key = self.key_file.with_suffix(".pub").read_text().strip()
            for host in self.hosts:
                self.let_in(host, USER, key)
        except BaseException:
            self.close()
            raise

    def let_in(self, host: Host, user: str, key: str) -> None:
        """Makes a user who may `sudo`, opens it and root to the key, and starts sshd."""
        host.run(["sh", "-c", _PREPARE.format(user=user, key=key)])
        self.start_sshd(host)

    def start_sshd(self, host: Host, *options: str) -> None:
        """Answers at port 22 from now on."""
        start(host, *options)

    def stop_sshd(self, host: Host) -> None:
        """Refuses connections from now on; those that there are go on."""
        stop = "pid=$(cat /run/sshd.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.01; done"
        host.run(["sh", "-c", f"{stop}; rm -f /run/sshd.pid"])

    def change_host_key(self, host: Host) -> None:
        """Makes the host another one, as it looks from outside."""
        self.stop_sshd(host)
        host.run(["sh", "-c", "rm /run/host_key*; ssh-keygen -q -t ed25519 -N '' -f /run/host_key"])
        self.start_sshd(host)

    @contextlib.contextmanager
    def mute(self, host: Host) -> Iterator[None]:
        """While it lasts, the operator's packets reach the host and are never answered, as behind a firewall."""
        host.run(["ip", "route", "add", "blackhole", f"{OPERATOR}/32"])
        try:
            yield
        finally:
            host.run(["ip", "route", "del", "blackhole", f"{OPERATOR}/32"])


def start(host: Host, *options: str) -> None:
    """Lets a host with /run/host_key answer at port 22 from now on."""
    settings = ("UsePAM=no", "PidFile=/run/sshd.pid", "Subsystem=sftp internal-sftp", "LogLevel=VERBOSE")
    words = [word for setting in (*settings, *options) for word in ("-o", setting)]
    # What it inherits must not hold the caller's pipes open. It notes its process when it listens.
    script = '"$@" </dev/null >/dev/null 2>&1; until [ -s /run/sshd.pid ]; do sleep 0.01; done'
    host.run(["sh", "-c", script, "sh", _SSHD, "-f", "/dev/null", "-h", "/run/host_key", "-E", _LOG, *words])


def has_cron() -> bool:
    """Whether hosts can have a cron daemon: Debian's package of that name is there."""
    return os.path.exists(_CRON)


def start_cron(host: Host) -> None:
    """Starts the host's cron daemon, with the crontabs of its users only. Does nothing without that package."""
    if has_cron():
        host.run(["sh", "-c", f"rm -f /etc/crontab /etc/cron.d/*; {_CRON} </dev/null >/dev/null 2>&1"])


def connections(host: Host) -> Counter[str]:
    """How many connections the host has accepted so far, by the address from which they came."""
    lines = host.run(["cat", _LOG]).splitlines()
    return Counter(line.split()[2] for line in lines if line.startswith("Connection from "))


def sessions(host: Host) -> int:
    """How many commands the host has been sent so far."""
    return host.run(["cat", _LOG]).count("Starting session: command")


def new_key(path: Path) -> None:
    """Makes a key pair at `path` and `path`.pub."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    os.chmod(path, 0o600)
