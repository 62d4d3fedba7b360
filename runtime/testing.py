"""Helpers for tests of Ray programs: signals between tasks, waiting for conditions, scripts run as drivers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import psutil

from runtime import api
from runtime._api.cluster_view import available_resources, cluster_resources
from runtime._process.core_worker import current
from runtime._wire.messages.control import ActorInfo, Actors, ListActors, WatchActor
from runtime.actor import ActorHandle
from runtime.cluster_utils import Cluster, ClusterNode
from runtime.compat._common.network_utils import find_free_port
from runtime.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

DEFAULT_DRIVER_TIMEOUT_S = 300.0


@api.remote(num_cpus=0)
class SignalActor:
    """An actor on which tasks and actors wait for a signal."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._waiters = 0

    def send(self, clear: bool = False) -> None:
        """Releases all waiting callers; with `clear`, later callers wait for the next signal."""
        self._event.set()
        if clear:
            self._event.clear()

    async def wait(self, should_wait: bool = True) -> None:
        """Waits for the signal."""
        self._waiters += 1
        try:
            if should_wait:
                await self._event.wait()
        finally:
            self._waiters -= 1

    async def cur_num_waiters(self) -> int:
        """The number of waiting callers."""
        return self._waiters


@api.remote(num_cpus=0)
class Semaphore:
    """At most `value` holders at a time."""

    def __init__(self, value: int = 1) -> None:
        self._semaphore = asyncio.Semaphore(value)

    async def acquire(self) -> None:
        """Waits for a place and takes it."""
        await self._semaphore.acquire()

    async def release(self) -> None:
        """Gives a place back."""
        self._semaphore.release()

    async def locked(self) -> bool:
        """Whether no place is free."""
        return self._semaphore.locked()


# ---------------------------------------------------------------- waiting


def wait_for_condition(
    condition_predictor: Callable[..., Any],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Calls `condition_predictor(**kwargs)` until it is true.

    Raises:
        RuntimeError: it was not true within `timeout` seconds. The message has its last exception, if any.
    """
    end = time.monotonic() + timeout
    last: Exception | None = None
    while time.monotonic() <= end:
        try:
            if condition_predictor(**kwargs):
                return
            last = None
        except Exception as error:
            if raise_exceptions:
                raise
            last = error
        time.sleep(retry_interval_ms / 1000)
    raise _not_met(timeout, last) from last


async def async_wait_for_condition(
    condition_predictor: Callable[..., Any],
    timeout: float = 10,  # noqa: ASYNC109 (the name that programs use)
    retry_interval_ms: float = 100,
    **kwargs: Any,
) -> None:
    """Like `wait_for_condition`, in a coroutine; the predicate may be a coroutine function."""
    end = time.monotonic() + timeout
    last: Exception | None = None
    while time.monotonic() <= end:
        try:
            met = condition_predictor(**kwargs)
            if await met if isinstance(met, Awaitable) else met:
                return
            last = None
        except Exception as error:
            last = error
        await asyncio.sleep(retry_interval_ms / 1000)
    raise _not_met(timeout, last) from last


def _not_met(timeout_s: float, last: Exception | None) -> RuntimeError:
    why = f" Last exception: {last!r}" if last is not None else ""
    return RuntimeError(f"The condition wasn't met before the timeout expired ({timeout_s} s).{why}")


def wait_for_assertion(
    assertion_predictor: Callable[..., Any],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Calls `assertion_predictor(**kwargs)` until it raises no AssertionError; at the timeout, re-raises it."""

    end = time.monotonic() + timeout
    while True:
        try:
            assertion_predictor(**kwargs)
            return
        except Exception as error:
            if time.monotonic() > end or (raise_exceptions and not isinstance(error, AssertionError)):
                raise
        time.sleep(retry_interval_ms / 1000)


def wait_until_succeeded_without_exception(
    func: Callable[..., Any],
    exceptions: tuple[type[BaseException], ...],
    *args: Any,
    timeout_ms: float = 1000,
    retry_interval_ms: float = 100,
    raise_last_ex: bool = False,
) -> bool:
    """Calls `func(*args)` until it raises none of `exceptions`. Returns whether it succeeded in time."""
    end = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            func(*args)
            return True
        except exceptions:
            if time.monotonic() > end:
                if raise_last_ex:
                    raise
                return False
        time.sleep(retry_interval_ms / 1000)


def wait_for_pid_to_exit(pid: int, timeout: float = 20) -> None:
    """Waits until process `pid` has ended (a zombie counts as ended).

    Raises:
        RuntimeError: the process still runs after `timeout` seconds.
    """
    wait_for_condition(lambda: not _runs(pid), timeout=timeout)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_children_of_pid(pid: int, num_children: int = 1, timeout: float = 20) -> None:
    """Waits until process `pid` has at least `num_children` children."""
    wait_for_condition(lambda: len(psutil.Process(pid).children()) >= num_children, timeout=timeout)


def wait_for_children_of_pid_to_exit(pid: int, timeout: float = 20) -> None:
    """Waits until the current children of process `pid` have ended."""
    children = [child.pid for child in psutil.Process(pid).children()]
    wait_for_condition(lambda: not any(map(_runs, children)), timeout=timeout)


# ---------------------------------------------------------------- actors, nodes, groups


def kill_actor_and_wait_for_failure(
    actor: ActorHandle, timeout: float = 10, retry_interval_ms: float = 100
) -> None:
    """Kills an actor as a crash would (`max_restarts` applies) and waits until the cluster knows."""
    before = _actor_info(actor)
    api.kill(actor, no_restart=False)
    wait_for_condition(
        lambda: (now := _actor_info(actor)).state == "DEAD" or now.restarts > before.restarts,
        timeout=timeout,
        retry_interval_ms=retry_interval_ms,
    )


def _actor_info(actor: ActorHandle) -> ActorInfo:
    reply = current().ask(WatchActor(actor._ray_actor_id.binary(), -1, 0.0))
    assert isinstance(reply, ActorInfo)
    return reply


def get_actor_node_id(actor: ActorHandle) -> str:
    """The node that an actor runs on, in hex."""
    return _actor_info(actor).node_id.hex()


def wait_for_num_actors(num_actors: int, state: str | None = None, timeout: float = 10) -> None:
    """Waits until the cluster has at least `num_actors` actors (in `state`)."""

    def enough() -> bool:
        reply = current().ask(ListActors())
        assert isinstance(reply, Actors)
        return sum(state is None or info.state == state for info in reply.actors) >= num_actors

    wait_for_condition(enough, timeout=timeout)


def get_other_nodes(cluster: Cluster, exclude_head: bool = False) -> list[ClusterNode]:
    """The nodes of a `cluster_utils.Cluster` but for its head and the node of this driver."""
    own = current().session.node_id.hex()
    nodes = [node for node in cluster.list_all_nodes() if node.node_id != own]
    return [node for node in nodes if not (exclude_head and node is cluster.head_node)]


def get_non_head_nodes(cluster: Cluster) -> list[ClusterNode]:
    """The nodes of a `cluster_utils.Cluster` but for its head."""
    return [node for node in cluster.list_all_nodes() if node is not cluster.head_node]


def is_placement_group_removed(group: PlacementGroup) -> bool:
    """Whether a placement group is in the state REMOVED."""
    table = placement_group_table(group)
    return not table or table["state"] == "REMOVED"


def placement_group_assert_no_leak(groups: Iterable[PlacementGroup]) -> None:
    """Asserts that no resources of the removed groups are left in the cluster."""
    for group in groups:
        remove_placement_group(group)

    def clean() -> bool:
        names = [*cluster_resources(), *available_resources()]
        return not any("_group_" in name for name in names)

    wait_for_condition(clean)


def same_elements(elems_a: Iterable[Any], elems_b: Iterable[Any]) -> bool:
    """Whether both have the same elements with the same counts, in any order. They need not be hashable."""
    rest = list(elems_b)
    for item in elems_a:
        if item not in rest:
            return False
        rest.remove(item)
    return not rest


def object_memory_usage() -> float:
    """The used share of the cluster's object stores, from 0 to 1."""
    total = cluster_resources().get("object_store_memory", 0.0)
    free = available_resources().get("object_store_memory", 0.0)
    return (total - free) / total if total else 0.0


# ---------------------------------------------------------------- processes of their own


def run_string_as_driver(
    driver_script: str,
    env: Mapping[str, str] | None = None,
    encode: str = "utf-8",
    timeout: float | None = DEFAULT_DRIVER_TIMEOUT_S,
) -> str:
    """Runs a program in another Python process; returns its standard output and standard error.

    Raises:
        subprocess.CalledProcessError: it failed; `output` has what it printed.
        subprocess.TimeoutExpired: it took longer than `timeout` seconds.
    """
    ended = _run(driver_script, env, encode, timeout, subprocess.STDOUT)
    return ended.stdout.decode(encode)


def run_string_as_driver_stdout_stderr(
    driver_script: str,
    env: Mapping[str, str] | None = None,
    encode: str = "utf-8",
    timeout: float | None = DEFAULT_DRIVER_TIMEOUT_S,
) -> tuple[str, str]:
    """Like `run_string_as_driver`, with standard output and standard error as two strings."""
    ended = _run(driver_script, env, encode, timeout, subprocess.PIPE)
    return ended.stdout.decode(encode), ended.stderr.decode(encode)


def _run(
    script: str, env: Mapping[str, str] | None, encoding: str, timeout_s: float | None, errors: int
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [sys.executable, "-"],
            input=script.encode(encoding),
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            timeout=timeout_s,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        print(f"the driver failed; it wrote:\n{error.output.decode(encoding, 'replace')}")
        raise


def run_string_as_driver_nonblocking(
    driver_script: str, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a program in another Python process and returns the process, with pipes for its output."""
    process = subprocess.Popen(
        [sys.executable, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    )
    assert process.stdin is not None
    process.stdin.write(driver_script.encode())
    process.stdin.close()
    return process


def get_current_unused_port() -> int:
    """A TCP port that was free a moment ago."""
    return find_free_port()
