"""The arguments of `init`: names, accepted values, and the cluster that they select."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from runtime._core import isolation
from runtime._core import labels as label_syntax
from runtime._core.isolation import Isolation
from runtime._core.resources import to_units
from runtime._session import find_agent
from runtime._system import settings
from runtime.job_config import JobConfig

_HIDDEN = frozenset(
    "object_spilling_directory _enable_object_reconstruction _plasma_directory _node_ip_address "
    "_driver_object_store_memory _memory _redis_username _redis_password _temp_dir _metrics_export_port "
    "_system_config _tracing_startup_hook _node_name _skip_env_hook allow_multiple".split()
)
"""Ray's arguments without a name in its signature. Those that `_init` does not read have no effect here."""
MIN_STORE_BYTES = 75 * 2**20
CLIENT_PORT = 10001
"""Of remote drivers, where "ray://host" says none."""
_CLIENT = "ray://"


def check_names(kwargs: Mapping[str, Any], address: str | None, local_mode: bool) -> None:
    """Raises RuntimeError for arguments that do not exist or were removed."""
    if "storage" in kwargs:
        raise RuntimeError(
            "Cluster-wide storage configuration has been removed: init() has no argument `storage` since Ray 2.48."
        )
    unknown = kwargs.keys() - _HIDDEN
    if unknown:
        raise RuntimeError(f"Unknown keyword argument(s): {', '.join(sorted(unknown))}")
    if kwargs.get("allow_multiple") is not None and not str(address or "").startswith(_CLIENT):
        raise RuntimeError(
            "`allow_multiple` argument is passed to `init` when the ray client is not used: leave it out."
        )
    if local_mode:
        raise RuntimeError(
            "`local_mode` is no longer supported: use num_cpus=1, or call the function itself to debug it."
        )


def isolation_of(
    enabled: bool, cgroup: Any, cpus: Any, memory: Any, store_bytes: Any, with_api: bool
) -> Isolation | None:
    """The control groups that a new cluster is to have, if any.

    Raises:
        ValueError: a wrong type, an amount that cannot be, or arguments that need `enable_resource_isolation`.
    """
    named = {"cgroup_path": cgroup, "system_reserved_cpu": cpus, "system_reserved_memory": memory}
    if not enabled:
        for name, value in named.items():
            if value is not None:
                raise ValueError(
                    f"{name} cannot be set when resource isolation is not enabled, and it is {value!r}: set "
                    "enable_resource_isolation=True."
                )
        return None
    expected: dict[str, tuple[tuple[type, ...], str]] = {
        "cgroup_path": ((str,), "a path"),
        "system_reserved_cpu": ((int, float), "a number of CPUs"),
        "system_reserved_memory": ((int,), "a whole number of bytes"),
    }
    for name, value in named.items():
        kinds, what = expected[name]
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise ValueError(f"Invalid value={value!r} for {name}: it must be {what}.")
    if with_api:
        raise ValueError(
            "enable_resource_isolation=True is not possible together with include_dashboard=True."
        )
    return isolation.plan(
        cgroup,
        cpus,
        memory,
        int(store_bytes or 0),
        os.cpu_count() or 1,
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )


def namespace_of(namespace: Any, job: JobConfig) -> str:
    """The namespace by argument, job configuration or environment; "" for one of the job's own."""
    for given in (namespace, job.ray_namespace):
        if given is None:
            continue
        if not isinstance(given, str):
            raise TypeError(f"namespace must be None or a string, not {given!r}.")
        if not given:
            raise ValueError('"" is not a valid namespace. Pass None for a new one.')
        return given
    return settings.NAMESPACE.get()


def own_cluster(**own: Any) -> dict[str, Any]:
    """Checks the resources of a new cluster.

    Raises:
        TypeError, ValueError, AssertionError: a wrong type, a wrong amount, or a resource that has its own keyword.
    """
    amounts = {"CPU": own["num_cpus"], "GPU": own["num_gpus"]}
    resources = own["resources"]
    if resources is not None:
        if not isinstance(resources, Mapping):
            raise TypeError(f"resources must be a dict from name to amount, not {type(resources)}.")
        for name, keyword in (
            ("CPU", "num_cpus"),
            ("GPU", "num_gpus"),
            ("memory", "_memory"),
            ("object_store_memory", "object_store_memory"),
        ):
            if name in resources:
                raise AssertionError(
                    f"`{name}` cannot be a custom resource, as every node has it: set it with `{keyword}`."
                )
        amounts.update(resources)
    for name, amount in amounts.items():
        if amount is None:
            continue
        if not isinstance(amount, int | float):
            raise TypeError(f"The amount of resource {name} must be a number, not {amount!r}.")
        if amount < 0:
            raise ValueError(f"Resource quantities must be nonnegative, and {name} is {amount}.")
        if amount != int(amount):
            raise ValueError(f"Resource quantities must all be whole numbers, and {name} is {amount}.")
    to_units({name: amount for name, amount in amounts.items() if amount is not None})
    store = own["object_store_memory"]
    if store is not None:
        if not isinstance(store, int | float):
            raise TypeError(f"object_store_memory must be a number of bytes, not {store!r}.")
        if store < MIN_STORE_BYTES:
            raise ValueError(
                f"object_store_memory={store} is too little for an object store: the minimum allowed is "
                f"{MIN_STORE_BYTES} bytes."
            )
    if own["labels"] is not None:
        label_syntax.check_labels(own["labels"])
    return own


def remote_address(address: Any, own: Mapping[str, Any], hidden: Mapping[str, Any]) -> str:
    """host:port of the remote driver server that an address ("ray://...") means; "": it means none. As for `agent_of`,
    the environment replaces None and "auto".

    Raises:
        ValueError: arguments of a new cluster are given as well.
    """
    if address in (None, "auto"):
        address = settings.CLUSTER_ADDRESS.get() or settings.RAY_ADDRESS.get()
    if not isinstance(address, str) or not address.startswith(_CLIENT):
        return ""
    _refuse_own(address, own, hidden)
    place = address.removeprefix(_CLIENT).rstrip("/") or "127.0.0.1"
    return place if ":" in place.rpartition("]")[2] else f"{place}:{CLIENT_PORT}"


def _refuse_own(address: str, own: Mapping[str, Any], hidden: Mapping[str, Any]) -> None:
    given = _given(own, hidden)
    if given:
        raise ValueError(
            f"When connecting to an existing cluster, {' and '.join(given)} must not be provided: they are for a "
            f"new one, and {address!r} names one that runs."
        )


def _given(own: Mapping[str, Any], hidden: Mapping[str, Any]) -> list[str]:
    given = [name for name, value in own.items() if value is not None]
    return given + (["_system_config"] if hidden.get("_system_config") is not None else [])


def agent_of(address: Any, own: Mapping[str, Any], hidden: Mapping[str, Any]) -> str:
    """The socket of the node agent to join; "" to start a cluster.

    CLUSTERCTL_ADDRESS, or else RAY_ADDRESS, replaces None and "auto".

    Raises:
        TypeError, ValueError: `init` takes no such address, or arguments of a new cluster are given with one to join.
        ConnectionError: no such cluster has a node on this machine.
    """
    if address in (None, "auto"):
        named = settings.CLUSTER_ADDRESS.get() or settings.RAY_ADDRESS.get()
        if not named and address is None and not _given(own, hidden):
            record = find_agent(None)
            return record.unix_path if record is not None else ""
        address = named or address
    if address is None or address == "local":
        return ""
    if not isinstance(address, str):
        raise TypeError(f"address must be None or a string, not {address!r}.")
    if not address:
        raise ValueError('Invalid address format: "". Give "auto", "local", "host:port", or leave it out.')
    if address.startswith(("http://", "https://")):
        raise ValueError(
            f"Invalid Ray address: {address!r} is the address of a job API, which `JobSubmissionClient` takes and "
            "RAY_API_SERVER_ADDRESS may hold. `init` and RAY_ADDRESS take the host:port of a control store."
        )
    _refuse_own(address, own, hidden)
    if address.startswith("/"):  # the agent's socket: the address of a local cluster
        if not os.path.exists(address):
            raise ConnectionError(f"Could not find any running Ray instance: {address!r} has ended.")
        return address
    if address != "auto" and ":" not in address:
        raise ValueError(f'Invalid address format: {address!r}. Give "auto", "local" or "host:port".')
    record = find_agent(address)
    if record is None:
        raise ConnectionError(
            f"Could not find any running Ray instance: no cluster at {address!r} has a node on this machine. Start one "
            "with `clusterctl up`, or leave the address out for a local one."
        )
    return record.unix_path


def check_python(of_cluster: str) -> None:
    """Refuses a cluster of another minor version of Python: functions travel as bytecode, which differs between them.

    Args:
        of_cluster: the version of the node that this program has joined, for instance "3.12"; "" if it does not say.

    Raises:
        RuntimeError: the versions differ, and RAY_IGNORE_VERSION_MISMATCH does not allow it.
    """
    own = "{}.{}".format(*sys.version_info)
    if of_cluster in ("", own) or settings.IGNORE_VERSION_MISMATCH.get():
        return
    raise RuntimeError(
        f"Version mismatch: the cluster runs Python {of_cluster}, and this program Python {own}. Functions and classes "
        f"cannot travel between them: run the program with Python {of_cluster}. RAY_IGNORE_VERSION_MISMATCH=1 joins "
        "nevertheless."
    )
