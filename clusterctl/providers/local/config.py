"""`provider: {type: local}`: machines are groups of processes of this host."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterctl.spec.kinds import ProviderConfig, Seconds, Struct


class LocalNodeConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`node_config` of a node type of the local provider. All of it serves rehearsals of bad days."""

    capacity: Annotated[
        int | None,
        Meta(description="Number of machines of the type; more are refused."),
    ] = None
    create_latency_s: Annotated[Seconds, Meta(description="How long creating a machine takes.")] = 0.0
    vanish_after_s: Annotated[
        float | None, Meta(description="The machine disappears this long after its creation.")
    ] = None


class LocalProvider(ProviderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="local"):
    """Machines are groups of processes of this host, each with its own directories, ports and resources."""

    root: Annotated[
        str,
        Meta(
            description="Where machines keep their files; a short path, because of Unix sockets. "
            "Default: a folder in the system's temporary directory.",
            extra={"env": True},
        ),
    ] = ""
    listing_lag_s: Annotated[
        Seconds, Meta(description="Rehearsal: list a new machine only after this time.")
    ] = 0.0


CONFIG = LocalProvider
