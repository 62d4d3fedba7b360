"""What a machine is told that joins a cluster. Imports little."""

from __future__ import annotations

import base64
import binascii

import msgspec

from clusterctl.startup.notices import Source

_PREFIX = "clusterctl-join-1."


class JoinOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Travels to a worker's machine as JSON.

    Attributes:
        address: HOST:PORT of the head's control store.
        secret_file: holds the cluster's secret; `~` is the home directory.
        host: address of this machine, for the other nodes.
        resources: what this node brings.
        instance_id: the autoscaler's name of this machine.
        notices: where this machine reads that its cloud takes it back; None: that does not happen.
    """

    address: str
    secret_file: str
    host: str
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    node_type: str = ""
    instance_id: str = ""
    notices: Source | None = None


class JoinToken(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that a machine needs to join a cluster by itself, as one string. It holds the cluster's secret, and is to be
    kept as one: who has it may do anything on the cluster.

    Attributes:
        address: HOST:PORT of the head's control store.
        secret: the cluster's.
        resources: what the node brings; empty: what its machine has.
    """

    address: str
    secret: str
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    node_type: str = ""
    instance_id: str = ""

    def text(self) -> str:
        """The string. The same for the same contents."""
        return _PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """Reads what `text` gave.

        Raises:
            ValueError: it is no token of this version. The message does not repeat it.
        """
        if not text.startswith(_PREFIX):
            raise ValueError(f"a joining token begins with {_PREFIX}")
        try:
            return msgspec.json.decode(base64.b64decode(text[len(_PREFIX) :], b"-_", validate=True), type=cls)
        except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError):
            raise ValueError("the joining token is damaged, or of another version") from None
