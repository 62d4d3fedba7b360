"""`provider: {type: ssh}`: SSH hosts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterctl.spec.kinds import EnvString, ProviderConfig, Python, Struct, env_string


class SshNodeConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`node_config` of a node type of SSH hosts."""

    hosts: Annotated[
        list[EnvString],
        Meta(description="Which of provider.workers may be nodes of this type. Default: any."),
    ] = []


class SshProvider(ProviderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ssh"):
    """Existing machines that are reached by SSH. They are taken and given back, not made."""

    head: Annotated[
        str,
        env_string(
            "The head's machine: HOST, HOST:PORT or USER@HOST; HOST may be an alias of ~/.ssh/config."
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
    python: Python = "python3"

    @property
    def of_node(self) -> object:
        return {"type": self.type_name, "python": self.python}  # the other hosts are not its business

    @property
    def of_head(self) -> str:
        return self.head


CONFIG = SshProvider
