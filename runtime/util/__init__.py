"""Public tools on top of the core API. Names are imported on first use, because every worker imports this package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# At once, as the module and the function have one name.
from runtime.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

_MODULE_OF = {
    "ActorPool": "actor_pool",
    "as_completed": "completion",
    "connect": "client",
    "deregister_serializer": "serialization",
    "disable_log_once_globally": "debug",
    "disconnect": "client",
    "enable_periodic_logging": "debug",
    "get_node_instance_id": "cluster_facts",
    "get_node_ip_address": "cluster_facts",
    "inspect_serializability": "check_serialize",
    "list_named_actors": "cluster_facts",
    "log_once": "debug",
    "map_unordered": "completion",
    "register_serializer": "serialization",
}
_SUBMODULES = frozenset(
    "accelerators actor_group actor_pool annotations check_serialize client collective dask debug iter joblib metrics "
    "multiprocessing queue rpdb scheduling_strategies serialization spark state".split()
)
_ALIASES = {"pdb": "rpdb"}

__all__ = [
    "ActorPool",
    "PlacementGroup",
    "accelerators",
    "as_completed",
    "client",
    "collective",
    "connect",
    "deregister_serializer",
    "disable_log_once_globally",
    "disconnect",
    "enable_periodic_logging",
    "get_current_placement_group",
    "get_node_instance_id",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "pdb",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    elif name in _SUBMODULES or name in _ALIASES:
        value = importlib.import_module(f"{__name__}.{_ALIASES.get(name, name)}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES, *_ALIASES})


if TYPE_CHECKING:
    from runtime.util.actor_pool import ActorPool as ActorPool
    from runtime.util.check_serialize import inspect_serializability as inspect_serializability
    from runtime.util.client import connect as connect
    from runtime.util.client import disconnect as disconnect
    from runtime.util.cluster_facts import get_node_instance_id as get_node_instance_id
    from runtime.util.cluster_facts import get_node_ip_address as get_node_ip_address
    from runtime.util.cluster_facts import list_named_actors as list_named_actors
    from runtime.util.completion import as_completed as as_completed
    from runtime.util.completion import map_unordered as map_unordered
    from runtime.util.debug import disable_log_once_globally as disable_log_once_globally
    from runtime.util.debug import enable_periodic_logging as enable_periodic_logging
    from runtime.util.debug import log_once as log_once
    from runtime.util.serialization import deregister_serializer as deregister_serializer
    from runtime.util.serialization import register_serializer as register_serializer
