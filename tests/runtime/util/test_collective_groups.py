"""Groups of several members: all operations against numpy, members that leave, die or do something else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.processes import is_alive
from tests.under_test import OWN, ray

if not OWN:
    pytest.skip("what the module does beyond Ray's", allow_module_level=True)

from runtime.util import collective
from runtime.util.collective import plan, types
from runtime.util.collective.collective_group.base_collective_group import BaseGroup
from runtime.util.collective.types import GroupError, MemberLostError, ReduceOp

pytestmark = pytest.mark.usefixtures("session")
WAIT_S = 120
SIZES = [0, 1, 7, 5000, 70_001]


@ray.remote(num_cpus=0, max_concurrency=3)
class Member:
    def join(self, world_size: int, rank: int, group: str, chunk_bytes: int = 1 << 16) -> int:
        plan.CHUNK_BYTES = chunk_bytes
        plan.EXCHANGED_BYTES = 1000
        self.rank, self.group, self.world_size = rank, group, world_size
        collective.init_collective_group(world_size, rank, "gloo", group, gloo_timeout=WAIT_S * 1000)
        return os.getpid()

    def all_operations(self, size: int, dtype: str) -> list[Any]:
        """The results of one of each, from tensors that all members can foresee."""
        rank, group, world_size = self.rank, self.group, self.world_size
        results = []
        for op in ReduceOp:
            results.append(values(rank, size, dtype))
            collective.allreduce(results[-1], group, op)
        results.append(values(rank, size, dtype))
        collective.reduce(results[-1], 1, group)
        results.append(values(rank, size, dtype))
        collective.broadcast(results[-1], world_size - 1, group)
        places = [np.zeros(size, dtype) for _ in range(world_size)]
        collective.allgather(places, values(rank, size, dtype), group)
        results += places
        results.append(np.zeros(size, dtype))
        parts = [values(rank + part, size, dtype) for part in range(world_size)]
        collective.reducescatter(results[-1], parts, group)
        collective.barrier(group)
        results.append(values(rank, size, dtype))
        if rank == 0:
            collective.send(results[-1], 1, group)
            collective.recv(results[-1], world_size - 1, group)
        elif rank == 1:
            collective.recv(results[-1], 0, group)
        if rank == world_size - 1:
            collective.send(values(rank, size, dtype), 0, group)
        return results

    def all_and_leave(self, size: int, dtype: str) -> list[Any]:
        results = self.all_operations(size, dtype)
        collective.destroy_collective_group(self.group)
        return results

    def torch_sum(self, dtype: str) -> list[float]:
        import torch

        tensor = torch.full((3000,), self.rank + 0.5).to(getattr(torch, dtype)).reshape(30, 100).T
        collective.allreduce(tensor, self.group)
        return [float(tensor.min()), float(tensor.max())]

    def call(self, operation: str, *args: Any) -> None:
        getattr(collective, operation)(*args)

    def error_of(self, operation: str, *args: Any) -> tuple[str, str, float]:
        """The error of an operation, and when it came."""
        try:
            getattr(collective, operation)(*args)
        except Exception as error:
            return type(error).__name__, str(error), time.time()
        return "", "", time.time()

    def leave(self) -> None:
        collective.destroy_collective_group(self.group)

    def descriptors(self) -> int:
        return len(os.listdir("/proc/self/fd"))


def values(rank: int, size: int, dtype: str) -> Any:
    """The tensor of a member: small integers, which no order of additions rounds."""
    return np.random.default_rng(rank).integers(1, 4, size).astype(dtype)


def expected(rank: int, world_size: int, size: int, dtype: str) -> list[Any]:
    all_values = [values(one, size, dtype) for one in range(2 * world_size)]
    own, members = all_values[rank], all_values[:world_size]
    results = []
    for op in ReduceOp:
        by = {
            ReduceOp.PRODUCT: np.multiply,
            ReduceOp.MIN: np.minimum,
            ReduceOp.MAX: np.maximum,
        }.get(op, np.add)
        result = by.reduce(members, dtype=dtype)
        results.append((result / world_size).astype(dtype) if op is ReduceOp.AVERAGE else result)
    results.append(results[0] if rank == 1 else own)
    results.append(members[-1])
    results += members
    results.append(np.add.reduce(all_values[rank : rank + world_size], dtype=dtype))
    results.append(members[-1] if rank == 0 else members[0] if rank == 1 else own)
    return results


def joined(world_size: int, group: str) -> tuple[list[Any], list[int]]:
    members = [Member.remote() for _ in range(world_size)]
    pids = ray.get([one.join.remote(world_size, rank, group) for rank, one in enumerate(members)])
    return members, pids


@pytest.fixture(scope="module", params=[2, 3, 5])
def members(request: pytest.FixtureRequest, session: None) -> Iterator[list[Any]]:
    made, _ = joined(request.param, f"all {request.param}")
    yield made
    for one in made:
        ray.kill(one)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "int16", "complex128"])
def test_all_operations(members: list[Any], size: int, dtype: str) -> None:
    found = ray.get([one.all_operations.remote(size, dtype) for one in members], timeout=WAIT_S)
    for rank, results in enumerate(found):
        wanted = expected(rank, len(members), size, dtype)
        assert len(results) == len(wanted)
        for index, (one, other) in enumerate(zip(results, wanted, strict=True)):
            assert np.array_equal(one, other), (rank, index)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_torch_tensors_of_any_layout_and_dtype(members: list[Any], dtype: str) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    wanted = sum(rank + 0.5 for rank in range(len(members)))
    found = ray.get([one.torch_sum.remote(dtype) for one in members], timeout=WAIT_S)
    assert found == [[wanted, wanted]] * len(members)


def test_other_operations_and_shapes_are_known_to_all(members: list[Any]) -> None:
    group = f"all {len(members)}"
    for tensors in (
        [np.ones(2)] * (len(members) - 1) + [np.ones(100_000)],
        [np.ones(1, "f4"), np.ones(1)] * 3,
    ):
        calls = [
            one.error_of.remote("allreduce", tensor, group)
            for one, tensor in zip(members, tensors, strict=False)
        ]
        for kind, text, _ in ray.get(calls, timeout=WAIT_S):
            assert kind == "RuntimeError"
            assert "All tensors of allreduce must have the same shape and dtype" in text
    calls = [
        one.error_of.remote("allreduce", np.ones(2), group, ReduceOp.MAX if rank else ReduceOp.MIN)
        for rank, one in enumerate(members)
    ]
    for kind, text, _ in ray.get(calls, timeout=WAIT_S):
        assert kind == "RuntimeError"
        assert "call different operations" in text
    ray.get([one.call.remote("barrier", group) for one in members], timeout=WAIT_S)


@pytest.mark.parametrize(
    ("operation", "args"),
    [
        ("allreduce", (np.ones(1),)),
        ("allreduce", (np.ones(500_000),)),
        ("broadcast", (np.ones(1), 2)),
        ("barrier", ()),
        ("recv", (np.ones(1), 1)),
    ],
    ids=["small", "large", "broadcast", "barrier", "recv"],
)
def test_a_member_that_dies_is_named_to_all(operation: str, args: Any) -> None:
    group = f"dies in {operation} of {args[0].size if args else 0}"
    members, pids = joined(3, group)
    ray.get([one.call.remote("barrier", group) for one in members], timeout=WAIT_S)
    waiting = [one.error_of.remote(operation, *args, group) for one in members[:1]]
    assert ray.wait(waiting, timeout=0.2)[0] == []
    os.kill(pids[2], signal.SIGKILL)
    # Rank 0 hears of it whomever it waits for, rank 1 with its next operation.
    for kind, text, _ in ray.get([*waiting, members[1].error_of.remote("barrier", group)], timeout=WAIT_S):
        assert kind == MemberLostError.__name__
        assert text.startswith(f"Rank 2 of the collective group '{group}' is gone: the actor Member ")
        assert f"(pid {pids[2]} on " in text


def test_a_member_that_joined_and_dies_before_the_group_has_formed_is_named() -> None:
    members = [Member.remote() for _ in range(4)]
    pids = ray.get([one.join.remote(4, rank, "forming") for rank, one in enumerate(members[:3])])
    waiting = [members[0].error_of.remote("barrier", "forming")]  # of rank 3, which does not come
    assert ray.wait(waiting, timeout=0.2)[0] == []
    os.kill(pids[2], signal.SIGKILL)  # it has opened nothing
    for kind, text, _ in ray.get(
        [*waiting, members[1].error_of.remote("barrier", "forming")], timeout=WAIT_S
    ):
        assert kind == MemberLostError.__name__
        assert f"(pid {pids[2]} on " in text


@ray.remote(num_cpus=0, max_retries=0)
def joins(world_size: int, rank: int, group: str) -> int:
    """A member that does nothing more; its process stays until it is killed."""
    collective.init_collective_group(world_size, rank, "gloo", group, gloo_timeout=WAIT_S * 1000)
    return os.getpid()


@pytest.mark.parametrize("comes", ["first", "last"])
def test_a_task_that_joined_and_dies_before_any_operation_is_named(comes: str) -> None:
    group = f"a task comes {comes}"
    member = Member.remote()
    if comes == "first":
        pid = ray.get(joins.remote(3, 1, group))
        ray.get(member.join.remote(3, 0, group))
        os.kill(pid, signal.SIGKILL)
        waiting = member.error_of.remote("barrier", group)  # of rank 2, which does not come
    else:
        ray.get(member.join.remote(3, 0, group))
        waiting = member.error_of.remote("barrier", group)
        assert ray.wait([waiting], timeout=0.2)[0] == []
        pid = ray.get(joins.remote(3, 1, group))
        os.kill(pid, signal.SIGKILL)
    kind, text, _ = ray.get(waiting, timeout=WAIT_S)
    assert kind == MemberLostError.__name__
    assert text.startswith(f"Rank 1 of the collective group '{group}' is gone: the task ")
    assert f"(pid {pid} on " in text
    ray.kill(member)


def test_a_member_that_dies_while_others_wait_for_one_that_is_busy_is_named() -> None:
    members, pids = joined(3, "busy")
    waiting = [members[0].error_of.remote("barrier", "busy")]  # of rank 1, which has joined
    assert ray.wait(waiting, timeout=0.2)[0] == []
    os.kill(pids[2], signal.SIGKILL)
    for kind, text, _ in ray.get([*waiting, members[1].error_of.remote("barrier", "busy")], timeout=WAIT_S):
        assert kind == MemberLostError.__name__
        assert f"(pid {pids[2]} on " in text


def test_a_declared_member_that_dies_before_it_joins_is_named() -> None:
    members = [Member.remote() for _ in range(2)]
    collective.create_collective_group(members, 2, [0, 1], "gloo", "declared", gloo_timeout=WAIT_S * 1000)
    waiting = members[0].error_of.remote("barrier", "declared")
    assert ray.wait([waiting], timeout=0.2)[0] == []
    ray.kill(members[1])
    kind, text, _ = ray.get(waiting, timeout=WAIT_S)
    assert kind == MemberLostError.__name__
    assert f"the actor {members[1]._actor_id.hex()}, before it joined" in text


def test_leaving_wakes_those_who_wait_here_and_elsewhere() -> None:
    members, _ = joined(2, "left")
    ray.get([one.call.remote("barrier", "left") for one in members], timeout=WAIT_S)
    waiting = members[0].error_of.remote("allreduce", np.ones(1), "left")
    assert ray.wait([waiting], timeout=1.0)[0] == []
    ray.get(members[0].leave.remote())
    kind, text, _ = ray.get(waiting, timeout=WAIT_S)
    assert (kind, "was destroyed in this process" in text) == (GroupError.__name__, True)
    kind, text, _ = ray.get(members[1].error_of.remote("barrier", "left"), timeout=WAIT_S)
    assert (kind, "has left" in text) == (GroupError.__name__, True)


def test_leaving_ends_the_wait_for_members_to_come() -> None:
    collective.init_collective_group(2, 0, "gloo", "nobody comes")
    errors: list[Exception] = []

    def wait() -> None:
        try:
            collective.barrier("nobody comes")
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    collective.destroy_collective_group("nobody comes")
    thread.join(WAIT_S)
    assert isinstance(errors[0], GroupError)


def test_a_group_can_be_left_right_after_its_last_operation_and_made_again() -> None:
    members = [Member.remote() for _ in range(3)]
    opened = []
    for size in (1, 70_000, 1, 70_000):
        ray.get([one.join.remote(3, rank, "again") for rank, one in enumerate(members)])
        calls = [one.all_and_leave.remote(size, "float32") for one in members]
        found = ray.get(calls, timeout=WAIT_S)
        opened.append(ray.get([one.descriptors.remote() for one in members]))
        for rank, results in enumerate(found):
            assert all(map(np.array_equal, results, expected(rank, 3, size, "float32")))
    assert max(opened[-1]) <= max(opened[0]) + 3  # nothing of a group stays


@pytest.mark.parametrize("of", ["an actor", "a task"])
def test_a_process_that_died_leaves_no_trace_to_the_next_group_of_the_name(of: str) -> None:
    """Its record is still there."""
    if of == "a task":
        pid = ray.get(joins.remote(2, 0, "next"))
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not is_alive(pid))
    else:
        lost = Member.remote()
        ray.get(lost.join.remote(2, 0, "next"))
        ray.kill(lost)
    members, _ = joined(2, "next")
    ray.get([one.call.remote("barrier", "next") for one in members], timeout=WAIT_S)


def test_a_timeout_ends_the_group_for_all() -> None:
    members = [Member.remote() for _ in range(2)]
    ray.get(
        [
            one.call.remote("init_collective_group", 2, rank, "gloo", "late", 500)
            for rank, one in enumerate(members)
        ]
    )
    ray.get([one.call.remote("barrier", "late") for one in members], timeout=WAIT_S)
    kind, text, _ = ray.get(members[0].error_of.remote("allreduce", np.ones(1), "late"), timeout=WAIT_S)
    assert (kind, text) == ("TimeoutError", "Ranks [1] did not join allreduce within 0.5 s.")
    ray.get(members[0].call.remote("is_group_initialized", "late"))
    kinds = [ray.get(members[1].error_of.remote("barrier", "late"), timeout=WAIT_S)[0] for _ in range(2)]
    assert kinds[1] == GroupError.__name__


def test_a_handle_and_backends() -> None:
    collective.init_collective_group(1, 0, "torch_gloo", "handle")
    handle = collective.get_group_handle("handle")
    assert (handle.rank, handle.world_size, handle.group_name) == (0, 1, "handle")
    array = np.full(3, 4)
    for op in ReduceOp:
        collective.allreduce(array, "handle", op)
        collective.reducescatter(array, [array.copy()], "handle", op)
    collective.allgather([array], array, "handle")
    collective.broadcast(array, 0, "handle")
    collective.reduce(array, 0, "handle")
    collective.barrier("handle")
    assert array.tolist() == [4, 4, 4]
    collective.destroy_collective_group("handle")
    assert [collective.is_backend_available(name) for name in ("gloo", "nccl", "x")] == [True, False, False]
    with pytest.raises(ValueError, match="Unrecognized backend: 'x'"):
        collective.init_collective_group(1, 0, "x", "handle")


class Doubling(BaseGroup):
    """A backend of a program's own."""

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def allreduce(self, tensor: Any, allreduce_options: types.AllReduceOptions) -> None:
        assert allreduce_options.reduceOp is ReduceOp.SUM
        tensor[0] *= 2

    def barrier(self, barrier_options: Any) -> None:
        raise NotImplementedError

    reduce = allgather = broadcast = reducescatter = send = recv = barrier  # type: ignore[assignment]


def test_backends_of_a_programs_own() -> None:
    collective.register_collective_backend("doubling", Doubling)
    assert collective.is_backend_available("DOUBLING")
    with pytest.raises(ValueError, match="already registered"):
        collective.register_collective_backend("Doubling", Doubling)
    with pytest.raises(ValueError, match="already registered"):
        collective.register_collective_backend("gloo", Doubling)
    with pytest.raises(TypeError, match="not a subclass of BaseGroup"):
        collective.register_collective_backend("other", int)  # type: ignore[arg-type]
    collective.init_collective_group(1, 0, "doubling", "own")
    assert isinstance(collective.get_group_handle("own"), Doubling)
    assert (collective.get_rank("own"), collective.get_collective_group_size("own")) == (0, 1)
    array = np.ones(2)
    collective.allreduce(array, "own")
    assert array.tolist() == [2, 2]
    collective.destroy_collective_group("own")


@pytest.mark.parametrize(
    ("operation", "args", "text"),
    [
        ("allreduce_multigpu", ([],), "Multigpu calls requires NCCL and Cupy."),
        ("reduce_multigpu", ([],), "Multigpu calls requires NCCL and Cupy."),
        ("broadcast_multigpu", ([],), "Multigpu calls requires NCCL and Cupy."),
        ("allgather_multigpu", ([], []), "Multigpu calls requires NCCL and Cupy."),
        ("reducescatter_multigpu", ([], []), "Multigpu calls requires NCCL and Cupy."),
        ("send_multigpu", (None, 0, 0), "send_multigpu call requires NCCL."),
        ("recv_multigpu", (None, 0, 0), "recv_multigpu call requires NCCL."),
    ],
)
def test_several_gpus_of_a_process_need_nccl(operation: str, args: Any, text: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        getattr(collective, operation)(*args)
    assert str(caught.value) == text
