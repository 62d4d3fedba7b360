"""How the machines of a cloud are entered: by SSH. The operator enters by `auth.ssh_private_key`, or else by a key that
is made for the cluster and ends with it. The head enters its workers by the cluster's key. The operator's own key never
leaves the operator's machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autoscaler.provider import Config
from clusterctl.providers.ssh import hosts
from clusterctl.shell import scripts
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.ssh_config import SshConfig
from clusterctl.shell.target import SshTarget
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.node_dir import NODE_FOLDER, SOCKETS, session_dir, sockets_dir

from . import identity
from .protocol import Seat

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SshAccess:
    """The way into the machines of one cluster.

    Args:
        settings: `folder`, for the cluster's key and the machines' pinned host keys; on the head `operators_key`, the
            public half of the operator's key.
        seat: where it runs.
        mark: what the key is called, e.g. the cluster's id.
        python: of the machines.
    """

    def __init__(
        self, spec: ClusterSpec, settings: Mapping[str, str], seat: Seat, mark: str, python: str
    ) -> None:
        self._spec = spec
        self._auth = spec.auth
        self._folder = Path(settings["folder"]).expanduser()
        self._on_head = seat is Seat.HEAD
        self._operators_key = settings.get("operators_key", "")
        self._mark = mark
        self._python = python

    def operators_key(self) -> str:
        """The line for `authorized_keys` by which the operator enters; makes the cluster's key where there is none.

        Raises:
            Config: the operator's key cannot be read.
        """
        if self._on_head:
            return self._operators_key or self.clusters_key()
        if not self._auth.ssh_private_key:
            return self.clusters_key()
        private = self.key_file()
        public = Path(self._auth.ssh_public_key or f"{private}.pub").expanduser()
        with contextlib.suppress(OSError):
            if line := public.read_text(encoding="utf-8").strip():
                return line
        return _public_half(private)

    def clusters_key(self) -> str:
        """The line for `authorized_keys` by which the head enters its workers; makes the key where there is none."""
        if self._on_head:  # only the private half comes there
            return _public_half(self.key_file())
        return identity.ensure(self._folder, self._mark)

    def workers_keys(self) -> list[str]:
        """The lines for a worker's `authorized_keys`: the operator's, then the cluster's where that is another."""
        operators, clusters = self.operators_key(), self.clusters_key()
        return [operators] if identity.same_key(operators, clusters) else [operators, clusters]

    def key_file(self) -> str:
        """The private key by which whoever runs this enters machines: the operator, or the head."""
        if self._auth.ssh_private_key and not self._on_head:
            return os.path.expanduser(self._auth.ssh_private_key)
        return str(self._folder / "ssh_key")

    def shell(self, machine_id: str, node_type: str, host: str, user: str) -> SshShell:
        """The shell of a machine. Its host key is pinned when it is first entered, by the machine's id and not by its
        address, which the next machine may get."""
        pins = self._folder / "host_keys"
        pins.mkdir(mode=0o700, parents=True, exist_ok=True)
        pin = str(pins / machine_id)
        base = SshTarget("", pin) if self._on_head else self._operators_base(pin)
        target = replace(base, host=host, user=user, key_file=self.key_file())
        return SshShell(target, self._environment(machine_id, node_type, user))

    def files_for_head(self) -> tuple[tuple[str, str], ...]:
        """What the head needs to enter the workers: (name in its node's folder, file here)."""
        self.clusters_key()
        return (("ssh_key", str(self._folder / "ssh_key")),)

    def settings_for_head(self, *, lets_operator_in: bool = True) -> dict[str, str]:
        """What makes this on the head.

        Args:
            lets_operator_in: the head brings the operator's key to the workers that it makes; the cloud does otherwise.
        """
        settings = {"folder": f"~/{NODE_FOLDER}"}
        return {**settings, "operators_key": self.operators_key()} if lets_operator_in else settings

    def forget(self) -> None:
        """Removes the cluster's key and the pinned host keys from here."""
        if self._on_head:
            return
        for name in ("ssh_key", "ssh_key.pub"):
            (self._folder / name).unlink(missing_ok=True)
        shutil.rmtree(self._folder / "host_keys", ignore_errors=True)
        with contextlib.suppress(OSError):  # others' files are in it, or it was never made
            self._folder.rmdir()

    def _operators_base(self, pin: str) -> SshTarget:
        """What is said of the machines themselves in the user's SSH configuration does not count: a cloud gives their
        addresses to one machine after the other."""
        config = SshConfig.read(self._auth.ssh_config) if self._auth.ssh_proxy_jump else SshConfig("")
        return hosts.operators_base(self._auth, pin, config)

    def _environment(self, machine_id: str, node_type: str, user: str) -> dict[str, str]:
        """Of everything that runs there. Images of clouds have their users' homes where these are expected."""
        home = "/root" if user == "root" else f"/home/{user}"
        runtime = f"{home}/{NODE_FOLDER}/runtime/bin"
        short = hashlib.sha256(machine_id.encode()).hexdigest()[:8]
        return {
            "PATH": f"{runtime}:{_PATH}",
            "CLUSTERCTL_PYTHON": f"{runtime}/python",
            "CLUSTERCTL_BASE_PYTHON": scripts.in_home(self._python, home),
            "CLUSTERCTL_SESSION_DIR": session_dir(self._spec, node_type, home, short),
            SOCKETS: sockets_dir(short),
            "PYTHONUNBUFFERED": "1",
        }


def _public_half(private: str) -> str:
    """The line for `authorized_keys` of a private key.

    Raises:
        Config: it cannot be read, or has a passphrase.
    """
    ran = subprocess.run(
        ["ssh-keygen", "-y", "-P", "", "-f", private], capture_output=True, text=True, timeout=30
    )
    if ran.returncode:
        raise Config(f"the private key {private} cannot be read: {ran.stderr.strip()}")
    return ran.stdout.strip()
