"""How a spec names machines, as targets. Pure."""

from __future__ import annotations

from dataclasses import replace

from clusterctl.shell.connections import SshTarget
from clusterctl.spec.definition import Auth
from clusterctl.spec.platforms.ssh import split_machine


def parse(text: str, base: SshTarget) -> SshTarget:
    """The target of what `split_machine` takes apart.

    Raises:
        ValueError: it names no machine.
    """
    user, host, port = split_machine(text)
    return replace(base, host=host, port=port or base.port, user=user or base.user)


def operators_base(auth: Auth, known_hosts: str) -> SshTarget:
    """What all targets have in common, seen from the operator's machine.

    Raises:
        ValueError: `ssh_proxy_jump` is none.
    """
    base = SshTarget("", known_hosts, user=auth.ssh_user, key_file=auth.ssh_private_key)
    jump: SshTarget | None = None
    for text in auth.ssh_proxy_jump.split(","):
        if text.strip():
            jump = replace(parse(text, base), jump=jump)
    return replace(base, proxy_command=auth.ssh_proxy_command, jump=jump)


def heads_base(auth: Auth, known_hosts: str, key_file: str) -> SshTarget:
    """The same, seen from the head, which is next to its workers: with the cluster's key, and no way around."""
    return SshTarget("", known_hosts, user=auth.ssh_user, key_file=key_file)


def name_of(target: SshTarget) -> str:
    """What a machine is called: as in the spec, without the user."""
    if target.port == 22:
        return target.host
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"
