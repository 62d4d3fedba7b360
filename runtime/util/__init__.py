"""Public tools on top of the core API."""

from runtime._wire.messages.control import Actors, ListActors
from runtime._worker.core_worker import current
from runtime.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = [
    "PlacementGroup",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "list_named_actors",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]


def get_node_ip_address() -> str:
    """The address that other nodes use for this one."""
    return current().session.node_host


def list_named_actors(all_namespaces: bool = False) -> list[str] | list[dict[str, str]]:
    """The names of the live named actors of this namespace; of all namespaces as dicts with `name` and `namespace`."""
    core = current()
    namespace = "" if all_namespaces else core.session.namespace
    reply = core.ask(ListActors(True, namespace))
    assert isinstance(reply, Actors)
    alive = [info.spec for info in reply.actors if info.state != "DEAD"]
    if all_namespaces:
        return [{"name": spec.name, "namespace": spec.namespace} for spec in alive]
    return [spec.name for spec in alive]
