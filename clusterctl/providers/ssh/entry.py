"""What the launcher knows of SSH hosts."""

from __future__ import annotations

from ..protocol import Entry
from . import document
from .config import SshNodeConfig

ENTRY = Entry(
    extra="ssh",
    modules=("paramiko",),
    node_config=SshNodeConfig,
    has_markets=False,
    implies_node_types=True,
    complete=document.complete,
    check=document.check,
)
