"""How a spec names machines, as targets. Pure, but for `located`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from clusterctl.shell.ssh_config import SshConfig
from clusterctl.shell.target import SshTarget
from clusterctl.spec.definition import Auth, ClusterSpec
from clusterctl.spec.host_names import split_machine

from .config import SshProvider


def parse(text: str, base: SshTarget, config: SshConfig | None = None) -> SshTarget:
    """The target of what `split_machine` takes apart.

    Args:
        config: says more of it, on the operator's machine.

    Raises:
        ValueError: it names no machine.
    """
    user, host, port = split_machine(text)
    if config is not None:
        return config.target(user, host, port, base)
    return replace(base, host=host, port=port or base.port, user=user or base.user)


def addressed(text: str, base: SshTarget, addresses: Mapping[str, str]) -> SshTarget:
    """The same seen from the head, which has no configuration of SSH: `addresses` says what the operator's says.

    Raises:
        ValueError: it names no machine.
    """
    address = addresses.get(text)
    if address is None:
        return parse(text, base)
    return replace(parse(address, base), name=name_of(parse(text, SshTarget("", ""))))


def addresses(spec: SshProvider, auth: Auth, config: SshConfig) -> dict[str, str]:
    """Where the machines of a spec are whose address or user only the operator's configuration says, as `addressed`
    takes it."""
    base = SshTarget("", "", user=auth.ssh_user)
    found = {}
    for text in (spec.head, *spec.workers):
        plain, target = parse(text, base), parse(text, base, config)
        if (target.user, target.host, target.port) != (plain.user, plain.host, plain.port):
            host = f"[{target.host}]" if ":" in target.host else target.host
            found[text] = f"{target.user}@{host}:{target.port}" if target.user else f"{host}:{target.port}"
    return found


def located(spec: ClusterSpec) -> ClusterSpec:
    """A spec that says itself where its machines are, for a head that has no SSH configuration.

    Raises:
        UsageProblem: the operator's cannot be read.
    """
    provider = spec.provider
    if not isinstance(provider, SshProvider):
        return spec
    found = addresses(provider, spec.auth, SshConfig.read(spec.auth.ssh_config))
    provider = msgspec.structs.replace(provider, addresses={**found, **provider.addresses})
    return msgspec.structs.replace(spec, provider=provider)


def operators_base(auth: Auth, known_hosts: str, config: SshConfig) -> SshTarget:
    """What all targets have in common, seen from the operator's machine.

    Raises:
        ValueError: `ssh_proxy_jump` is none.
    """
    base = SshTarget("", known_hosts, user=auth.ssh_user, key_file=auth.ssh_private_key)
    jump: SshTarget | None = None
    for text in auth.ssh_proxy_jump.split(","):
        if text.strip():
            jump = config.jump(*split_machine(text), replace(base, jump=jump))
    return replace(base, proxy_command=auth.ssh_proxy_command, jump=jump)


def heads_base(auth: Auth, known_hosts: str, key_file: str) -> SshTarget:
    """The same, seen from the head, which is next to its workers: with the cluster's key, and no way around."""
    return SshTarget("", known_hosts, user=auth.ssh_user, key_file=key_file)


def name_of(target: SshTarget) -> str:
    """What a machine is called: as in the spec, without the user."""
    if target.name:
        return target.name
    if target.port == 22:
        return target.host
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"
