"""Machines as entries of an OpenSSH configuration, so that `ssh`, `scp`, `rsync` and editors enter them as we do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import known_hosts
from .target import SshTarget


def stanzas(hosts: Mapping[str, SshTarget], jump_name: str) -> Iterator[str]:
    """The lines for hosts, by the name that `ssh` will know them by, and for the machines that lead to them.

    Args:
        jump_name: what those are called; further ones get a number.
    """
    jumps: dict[SshTarget, str] = {}
    for name, target in hosts.items():
        yield from _stanza(name, target, jumps, jump_name)
    done = 0
    while done < len(jumps):  # a jump host may itself be behind another
        target, name = list(jumps.items())[done]
        yield from _stanza(name, target, jumps, jump_name)
        done += 1


def _stanza(name: str, target: SshTarget, jumps: dict[SshTarget, str], jump_name: str) -> Iterator[str]:
    yield f"Host {name}"
    for key, value in _options(target):
        yield f"  {key} {value}"
    if target.jump is not None:
        number = f"-{len(jumps) + 1}" if jumps else ""
        yield f"  ProxyJump {jumps.setdefault(target.jump, jump_name + number)}"
    elif target.proxy_command:
        yield f"  ProxyCommand {target.proxy_command}"
    yield ""


def _options(target: SshTarget) -> Iterator[tuple[str, str]]:
    yield "HostName", target.host
    yield "Port", str(target.port)
    if target.user:
        yield "User", target.user
    for file in (target.key_file,) if target.key_file else target.identities:
        yield "IdentityFile", _path(file)
    if target.key_file or target.identities_only:
        yield "IdentitiesOnly", "yes"
    if target.certificate:
        yield "CertificateFile", _path(target.certificate)
    pin = target.known_hosts
    if known_hosts.load(pin, known_hosts.name(target.host, target.port)):
        yield "UserKnownHostsFile", _path(pin)
        yield "StrictHostKeyChecking", "yes"
    else:  # `ssh` pins its key as we would
        yield "UserKnownHostsFile", " ".join(map(_path, (pin, *target.users_known_hosts)))
        if target.host_key_alias:
            yield "HostKeyAlias", target.host_key_alias
        yield "StrictHostKeyChecking", "yes" if target.is_strict else "accept-new"
    yield "GlobalKnownHostsFile", "none"


def _path(path: str) -> str:
    """A path as the file has it, where % begins a token."""
    return '"' + path.replace("%", "%%") + '"'
