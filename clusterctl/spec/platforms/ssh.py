"""`provider: {type: ssh}`: SSH hosts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..kinds import EnvString, Struct


def split_machine(text: str) -> tuple[str, str, int]:
    """The user ("": the default one), the host and the port (0: the default one) of HOST, USER@HOST, HOST:PORT, an IPv6
    address, or [IPv6]:PORT.

    Raises:
        ValueError: it is none of them.
    """
    user, _, rest = text.strip().rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, closed, port = rest[1:].partition("]")
        host, port = host if closed else "", port.removeprefix(":")
    elif rest.count(":") == 1:
        host, colon, port = rest.partition(":")
        port = port or colon
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host or len((user + host).split()) > 1 or (port and not 0 < number < 2**16):
        raise ValueError(f"'{text}' is not a machine: write HOST, HOST:PORT or USER@HOST")
    return user, host, number


class SshNodeConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`node_config` of a node type of SSH hosts."""

    hosts: Annotated[
        list[EnvString],
        Meta(description="Which of provider.workers may be nodes of this type. Default: any."),
    ] = []


class SshProvider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="ssh"):
    """Existing machines that are reached by SSH. They are taken and given back, not made."""

    head: Annotated[
        str,
        Meta(
            description="The head's machine: HOST, HOST:PORT or USER@HOST; HOST may be an alias of ~/.ssh/config.",
            extra={"env": True},
        ),
    ]
    workers: Annotated[
        list[EnvString], Meta(description="The workers' machines, written as the head's.")
    ] = []
    addresses: Annotated[
        dict[str, EnvString],
        Meta(
            description="Where the head reaches a machine: its entry above -> USER@HOST:PORT. Default: from your SSH "
            "configuration."
        ),
    ] = {}
    python: Annotated[
        str,
        Meta(
            description="The Python of the machines: 3.11 or newer, the same minor version on all.",
            extra={"env": True},
        ),
    ] = "python3"
