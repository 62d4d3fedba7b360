"""How the machines of a cloud are entered: by SSH, with one key for the cluster. It is the operator's
(`auth.ssh_private_key`), or else one that is made for the cluster and ends with it. The head gets it, too: it sets up
the workers.
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
from clusterctl.shell import words
from clusterctl.shell.connections import SshTarget
from clusterctl.shell.ssh import SshShell
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.node_dir import NODE_FOLDER, SOCKETS, session_dir, sockets_dir

from . import identity

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SshAccess:
    """The way into the machines of one cluster.

    Args:
        settings: `folder`, for the cluster's key and the machines' pinned host keys; `on_head`, if that is where it
            runs.
        mark: what the key is called, e.g. the cluster's id.
        python: of the machines.
    """

    def __init__(self, spec: ClusterSpec, settings: Mapping[str, str], mark: str, python: str) -> None:
        self._spec = spec
        self._auth = spec.auth
        self._folder = Path(settings["folder"]).expanduser()
        self._on_head = bool(settings.get("on_head"))
        self._mark = mark
        self._python = python

    def public_key(self) -> str:
        """The line for `authorized_keys`; makes the key where there is none.

        Raises:
            Config: the operator's key cannot be read.
        """
        if not self._auth.ssh_private_key and not self._on_head:
            return identity.ensure(self._folder, self._mark)
        private = self.key_file()
        if not self._on_head:  # only the private half comes there
            public = Path(self._auth.ssh_public_key or f"{private}.pub").expanduser()
            with contextlib.suppress(OSError):
                return public.read_text(encoding="utf-8").strip()
        ran = subprocess.run(
            ["ssh-keygen", "-y", "-P", "", "-f", private], capture_output=True, text=True, timeout=30
        )
        if ran.returncode:
            raise Config(f"the private key {private} cannot be read: {ran.stderr.strip()}")
        return ran.stdout.strip()

    def key_file(self) -> str:
        """The private key."""
        if self._auth.ssh_private_key and not self._on_head:
            return os.path.expanduser(self._auth.ssh_private_key)
        return str(self._folder / "ssh_key")

    def shell(self, machine_id: str, node_type: str, host: str, user: str) -> SshShell:
        """The shell of a machine. Its host key is pinned when it is first entered, by the machine's id and not by its
        address, which the next machine may get."""
        pins = self._folder / "host_keys"
        pins.mkdir(mode=0o700, parents=True, exist_ok=True)
        pin = str(pins / machine_id)
        base = SshTarget("", pin) if self._on_head else hosts.operators_base(self._auth, pin)
        target = replace(base, host=host, user=user, key_file=self.key_file())
        return SshShell(target, self._environment(machine_id, node_type, user))

    def files_for_head(self) -> tuple[tuple[str, str], ...]:
        """What the head needs to enter the workers: (name in its node's folder, file here)."""
        return (("ssh_key", self.key_file()),)

    def settings_for_head(self) -> dict[str, str]:
        """What makes this on the head."""
        return {"folder": f"~/{NODE_FOLDER}", "on_head": "yes"}

    def forget(self) -> None:
        """Removes the cluster's key and the pinned host keys from here."""
        if self._on_head:
            return
        for name in ("ssh_key", "ssh_key.pub"):
            (self._folder / name).unlink(missing_ok=True)
        shutil.rmtree(self._folder / "host_keys", ignore_errors=True)
        with contextlib.suppress(OSError):  # others' files are in it, or it was never made
            self._folder.rmdir()

    def _environment(self, machine_id: str, node_type: str, user: str) -> dict[str, str]:
        """Of everything that runs there. Images of clouds have their users' homes where these are expected."""
        home = "/root" if user == "root" else f"/home/{user}"
        runtime = f"{home}/{NODE_FOLDER}/runtime/bin"
        short = hashlib.sha256(machine_id.encode()).hexdigest()[:8]
        return {
            "PATH": f"{runtime}:{_PATH}",
            "CLUSTERCTL_PYTHON": f"{runtime}/python",
            "CLUSTERCTL_BASE_PYTHON": words.in_home(self._python, home),
            "CLUSTERCTL_SESSION_DIR": session_dir(self._spec, node_type, home, short),
            SOCKETS: sockets_dir(short),
            "PYTHONUNBUFFERED": "1",
        }
