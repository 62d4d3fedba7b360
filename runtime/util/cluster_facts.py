"""Facts about the cluster and this node."""

from __future__ import annotations

import socket

from runtime._process.core_worker import current, current_or_none
from runtime._wire.messages.control import Actors, GetNodes, ListActors, Nodes


def get_node_ip_address(address: str = "8.8.8.8:53") -> str:
    """The address of this node for other nodes; before `init`, this machine's address on the route to `address`."""
    core = current_or_none()
    if core is not None:
        return core.session.node_host
    host, _, port = address.partition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, int(port or 53)))  # sends nothing
            own: str = probe.getsockname()[0]
        except OSError:  # no network
            return "127.0.0.1"
    return own


def get_node_instance_id() -> str:
    """The provider's id of this machine; "" if the node was started by hand."""
    core = current()
    reply = core.ask(GetNodes())
    assert isinstance(reply, Nodes)
    return next((node.instance_id for node in reply.nodes if node.node_id == core.session.node_id), "")


def list_named_actors(all_namespaces: bool = False) -> list[str] | list[dict[str, str]]:
    """The names of the live named actors in this namespace, or dicts of `name` and `namespace` for all namespaces."""
    core = current()
    namespace = "" if all_namespaces else core.session.namespace
    reply = core.ask(ListActors(True, namespace))
    assert isinstance(reply, Actors)
    alive = [info.spec for info in reply.actors if info.state != "DEAD"]
    if all_namespaces:
        return [{"name": spec.name, "namespace": spec.namespace} for spec in alive]
    return [spec.name for spec in alive]
