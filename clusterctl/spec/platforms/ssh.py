"""`provider: {type: ssh}`: one's own machines."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..kinds import EnvString, Struct


class SshNodeConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`node_config` of a node type of one's own machines."""

    hosts: Annotated[
        list[EnvString],
        Meta(description="Which of provider.workers may be nodes of this type. Default: any."),
    ] = []


class SshProvider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="ssh"):
    """One's own machines, entered by SSH. They are taken and given back instead of made."""

    head: Annotated[
        str, Meta(description="The head's machine, as HOST, HOST:PORT or USER@HOST.", extra={"env": True})
    ]
    workers: Annotated[
        list[EnvString], Meta(description="The workers' machines, written as the head's.")
    ] = []
    python: Annotated[
        str,
        Meta(description="The Python of the machines: the same minor version as here.", extra={"env": True}),
    ] = "python3"
