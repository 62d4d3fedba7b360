"""Entries by which `ssh` enters a cluster's machines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clusterctl import output

if TYPE_CHECKING:
    from clusterctl.home import Home

    from .opened_cluster import OpenedCluster


def entries(opened: OpenedCluster) -> str:
    """The entries of all machines that run, the head's first.

    Raises:
        UsageProblem: they are not entered by SSH.
        Unreachable: none runs.
    """
    from clusterctl.errors import UsageProblem
    from clusterctl.shell.ssh import SshShell
    from clusterctl.shell.ssh_stanzas import stanzas

    from .opened_cluster import label

    name, provider = opened.record.name, opened.provider()
    hosts = {}
    for machine in opened.running():
        shell = provider.shell(machine)
        if not isinstance(shell, SshShell):
            kind = opened.record.spec.provider.type_name
            raise UsageProblem(
                f"machines of provider type {kind} are not entered by SSH",
                f"Use `clusterctl attach {name}`, or `clusterctl exec {name} COMMAND`.",
            )
        hosts[name if machine.is_head else f"{name}-{label(machine)}"] = shell.target
    return "".join(f"{line}\n" for line in stanzas(hosts, f"{name}-jump"))


def write(opened: OpenedCluster) -> None:
    """Writes the entries to the state folder, where they end with the cluster, and says how `ssh` finds them.

    Raises:
        UsageProblem: the machines are not entered by SSH.
    """
    name = opened.record.name
    file = opened.home.write_ssh_config(name, entries(opened))
    workers = len(opened.running()) - 1
    more = f" and {workers} worker{'' if workers == 1 else 's'}" if workers else ""
    output.progress(f"{file} has entries for `ssh {name}`{more}")
    line = _missing_line(opened.home)
    if line:
        output.progress(f"for `ssh` to read them, put once at the top of ~/.ssh/config: {line}")


def _missing_line(home: Home) -> str:
    """The line that the user's configuration lacks; "" if it has it."""
    pattern = home.ssh_configs
    user = os.path.expanduser("~")
    shown = f"~{pattern.removeprefix(user)}" if pattern.startswith(f"{user}/") else pattern
    try:
        with open(os.path.join(user, ".ssh", "config"), encoding="utf-8", errors="replace") as file:
            words = {word for line in file for word in _included(line)}
    except OSError:
        words = set()
    return "" if words & {pattern, shown} else f"Include {shown}"


def _included(line: str) -> list[str]:
    first, *words = line.replace('"', " ").split() or [""]
    return words if first.lower() == "include" else []
