"""`util.state`: what there is in the cluster."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, ray, util

state: Any = importlib.import_module(f"{NAME}.util.state")
ROOT = str(pathlib.Path(__file__).parents[3])
pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return os.getpid()


def test_actors() -> None:
    actor = Counter.options(name="of the state").remote()
    pid = ray.get(actor.add.remote())
    (row,) = state.list_actors(filters=[("name", "=", "of the state")])
    assert row.state == row["state"] == row.get("state") == "ALIVE"
    assert row.class_name == "Counter"
    assert row.pid == pid
    assert row.actor_id == actor._actor_id.hex()
    assert row.node_id == ray.get_runtime_context().get_node_id()
    assert row.num_restarts is None
    assert row.asdict()["class_name"] == "Counter"
    detailed = state.get_actor(row.actor_id)
    assert detailed.num_restarts == 0
    assert detailed.is_detached is False
    assert state.get_actor("f" * 32) is None
    ray.kill(actor)
    assert eventually(lambda: state.get_actor(row.actor_id).state == "DEAD")
    assert row.actor_id not in [r.actor_id for r in state.list_actors(filters=[("state", "!=", "dead")])]
    assert row.actor_id in [r.actor_id for r in state.list_actors(filters=[("state", "=", "dead")])]
    summary = state.summarize_actors()["cluster"]
    assert summary["summary"]["Counter"]["state_counts"]["DEAD"] >= 1


def test_columns_of_filters_in_any_case() -> None:
    actor = Counter.options(name="of upper case").remote()
    ray.get(actor.__ray_ready__.remote())
    (row,) = state.list_actors(filters=[("NAME", "=", "of upper case"), ("Class_Name", "=", "Counter")])
    assert row.state == "ALIVE"
    ray.kill(actor)


def test_why_a_placement_group_waits() -> None:
    free = ray.available_resources()["CPU"]
    groups = [util.placement_group([{"CPU": size}], name=f"waits {size}") for size in (free, 4, 5000)]
    ray.get(groups[0].ready())

    def states() -> dict[str, str]:
        rows = state.list_placement_groups(detail=True)
        return {row.name: row.stats["scheduling_state"] for row in rows if row.name.startswith("waits")}

    assert eventually(
        lambda: (
            states() == {f"waits {free}": "FINISHED", "waits 4": "NO_RESOURCES", "waits 5000": "INFEASIBLE"}
        )
    )
    for group in groups:
        util.remove_placement_group(group)


def test_filters_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="predicate"):
        state.list_actors(filters=[("state", ">", "ALIVE")])
    with pytest.raises(ValueError):
        state.list_actors(filters=["state=ALIVE"])
    with pytest.raises(importlib.import_module(f"{NAME}.util.state.exception").RayStateApiException):
        state.list_actors(filters=[("no_such_column", "=", "ALIVE")])


def test_a_limit_that_is_too_high() -> None:
    error = importlib.import_module(f"{NAME}.util.state.exception").RayStateApiException
    with pytest.raises(error, match="exceeds the supported limit"):
        state.list_actors(limit=10**8)


def test_nodes_jobs_and_workers() -> None:
    (node,) = state.list_nodes()
    assert node.node_id == ray.get_runtime_context().get_node_id()
    assert node.state == "ALIVE"
    assert node.is_head_node is True
    assert node.resources_total["CPU"] == 4
    assert state.get_node(node.node_id).node_ip == node.node_ip
    job_id = ray.get_runtime_context().get_job_id()
    (job,) = [one for one in state.list_jobs() if one.job_id == job_id]
    assert job.status == "RUNNING"
    assert job.type == "DRIVER"
    workers = state.list_workers(filters=[("is_alive", "=", True)], limit=1000)
    assert os.getpid() in [row.pid for row in workers if row.worker_type == "DRIVER"]


def test_placement_groups() -> None:
    group = util.placement_group([{"CPU": 1}], name="of the state")
    ray.get(group.ready())
    (row,) = state.list_placement_groups(filters=[("name", "=", "of the state")], detail=True)
    assert row.state == "CREATED"
    assert row.placement_group_id == group.id.hex()
    assert row.is_detached is False
    assert len(row.bundles) == 1
    assert state.get_placement_group(group.id.hex()).name == "of the state"
    util.remove_placement_group(group)
    assert eventually(lambda: state.get_placement_group(group.id.hex()).state == "REMOVED")


def test_tasks(tmp_path: pathlib.Path) -> None:
    @ray.remote
    def state_runs(path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.01)

    @ray.remote(max_retries=1, retry_exceptions=True)
    def state_fails() -> None:
        raise ZeroDivisionError("bad luck")

    running = state_runs.remote(str(tmp_path / "go"))
    waiting = state_runs.options(num_cpus=4, name="waiting task").remote(str(tmp_path / "go"))
    failing = state_fails.remote()
    with pytest.raises(ZeroDivisionError):
        ray.get(failing)

    def states(name: str) -> list[str]:
        return sorted(row.state for row in state.list_tasks(filters=[("name", "=", name)]))

    assert eventually(lambda: states("state_runs") == ["RUNNING"])
    assert eventually(lambda: states("waiting task") == ["PENDING_NODE_ASSIGNMENT"])
    assert eventually(lambda: states("state_fails") == ["FAILED", "FAILED"])
    rows = state.list_tasks(filters=[("name", "=", "state_fails")], detail=True)
    assert {row.attempt_number for row in rows} == {0, 1}
    assert {row.type for row in rows} == {"NORMAL_TASK"}
    last = max(rows, key=lambda row: row.attempt_number)
    assert last.error_type == "TASK_EXECUTION_EXCEPTION"
    assert "bad luck" in last.error_message
    (row,) = state.list_tasks(filters=[("name", "=", "state_runs")])
    assert row.task_id == running.task_id().hex()
    assert row.worker_pid not in (None, os.getpid())
    (tmp_path / "go").touch()
    ray.get([running, waiting])
    assert eventually(lambda: states("state_runs") == ["FINISHED"])
    ended = state.get_task(row.task_id)
    assert ended.state == "FINISHED"
    assert ended.creation_time_ms <= ended.start_time_ms <= ended.end_time_ms


def test_tasks_whose_errors_leave_the_process_that_reads_them() -> None:
    def leave() -> None:
        raise SystemExit(3)

    class Leaves(Exception):
        def __reduce__(self) -> tuple[object, ...]:
            return leave, ()

    @ray.remote(max_retries=0)
    def state_leaves() -> None:
        raise Leaves

    ray.wait([state_leaves.remote()], timeout=60)
    (row,) = state.list_tasks(filters=[("name", "=", "state_leaves")], detail=True)
    assert row.state == "FAILED"
    if OWN:
        assert "SystemExit: 3" in row.error_message


def test_calls_of_actors() -> None:
    actor = Counter.remote()
    ray.get([actor.add.remote() for _ in range(3)])

    def finished() -> int:
        filters = [("actor_id", "=", actor._actor_id.hex()), ("type", "=", "ACTOR_TASK")]
        return sum(
            row.state == "FINISHED" and row.name == "Counter.add" for row in state.list_tasks(filters=filters)
        )

    assert eventually(lambda: finished() == 3)
    (made,) = state.list_tasks(
        filters=[("actor_id", "=", actor._actor_id.hex()), ("type", "=", "ACTOR_CREATION_TASK")]
    )
    assert made.state == "FINISHED"
    assert made.name == "Counter.__init__"
    summary = state.summarize_tasks()["cluster"]
    assert summary["summary"]["Counter.add"]["state_counts"]["FINISHED"] >= 3


def test_objects() -> None:
    ref = ray.put(b"x" * 10_000)
    rows = state.list_objects(filters=[("object_id", "=", ref.hex())], limit=1000)
    assert rows
    assert rows[0].pid == os.getpid()
    assert rows[0].type.lower() == "driver"
    assert state.summarize_objects()["cluster"]["total_objects"] >= 1


@ray.remote(num_cpus=0)
class Speaker:
    def say(self, *words: str) -> int:
        print("\n".join(words), flush=True)
        return os.getpid()


def written(**which: Any) -> str:
    return "".join(state.get_log(**which))


def test_logs() -> None:
    speaker = Speaker.remote()
    pid = ray.get(speaker.say.remote("one", "two", "three"))
    actor_id, node_id = speaker._actor_id.hex(), ray.get_runtime_context().get_node_id()
    assert eventually(lambda: "three" in written(actor_id=actor_id))
    assert written(actor_id=actor_id).split()[-3:] == ["one", "two", "three"]
    assert written(actor_id=actor_id, tail=2).split() == ["two", "three"]
    assert written(node_id=node_id, pid=pid, suffix="err") == ""
    names = state.list_logs(node_id=node_id)
    (name,) = [name for name in names["worker_out"] if name.endswith(f"-{pid}.out")]
    assert b"two" in b"".join(state.get_log(node_id=node_id, filename=name, encoding=None))
    assert list(state.list_logs(node_id=node_id, glob_filter="*.err")) == ["worker_err"]
    follower = state.get_log(actor_id=actor_id, follow=True, tail=1, _interval=0.05)
    assert next(follower).split() == ["three"]
    ray.get(speaker.say.remote("four"))
    assert next(follower).split()[-1] == "four"


def test_logs_that_are_not_there() -> None:
    node_id = ray.get_runtime_context().get_node_id()
    with pytest.raises(ValueError):
        state.list_logs()
    for which in ({"actor_id": "f" * 32}, {"node_id": node_id, "filename": "no such file"}):
        with pytest.raises(Exception, match=r"not find|ould not|No such"):
            written(**which)


@pytest.mark.skipif(not OWN, reason="looks at the engine's own messages")
def test_filters_and_the_limit_travel_with_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    core = importlib.import_module(f"{NAME}._process.core_worker").current()
    ask, sent = core.ask, {}

    def remember(request: Any, timeout_s: float) -> Any:
        reply = ask(request, timeout_s)
        if hasattr(request, "kind"):
            sent[request.kind] = len(reply.rows)
        return reply

    monkeypatch.setattr(core, "ask", remember)
    refs = [ray.put(number) for number in range(20)]
    assert len(state.list_objects(limit=3)) == sent["objects"] == 3
    (row,) = state.list_objects(filters=[("object_id", "=", refs[7].hex())])
    assert row.object_id == refs[7].hex()
    assert sent["objects"] == 1
    assert len(state.list_objects(filters=[("pid", "=", os.getpid())], limit=2)) == 2
    assert sent["objects"] >= 20, "the agent adds the process id"


LEAVES = """
import sys
import {name} as ray
ray.init({address!r}, log_to_driver=False)

@ray.remote(max_retries=0)
def of_the_driver(fails):
    if fails:
        raise ValueError("as asked")

ray.wait([of_the_driver.remote(False), of_the_driver.remote(True)], num_returns=2)
context = ray.get_runtime_context()
print(context.get_job_id(), context.get_worker_id())
"""


def test_tasks_and_workers_of_a_driver_that_has_left() -> None:
    address = ray.get_runtime_context().gcs_address
    left = subprocess.run(
        [sys.executable, "-c", LEAVES.format(name=NAME, address=address)],
        env={**os.environ, "PYTHONPATH": ROOT},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    job_id, worker_id = left.stdout.split()[-2:]

    def of_the_job() -> list[Any]:
        rows = state.list_tasks(filters=[("job_id", "=", job_id)], detail=True)
        return sorted((row for row in rows if row.name == "of_the_driver"), key=lambda row: row.state)

    assert eventually(lambda: [row.state for row in of_the_job()] == ["FAILED", "FINISHED"])
    failed, finished = of_the_job()
    assert failed.error_type == "TASK_EXECUTION_EXCEPTION"
    assert "as asked" in failed.error_message
    assert state.get_task(finished.task_id).state == "FINISHED"
    assert eventually(lambda: state.get_worker(worker_id).is_alive is False)
    row = state.get_worker(worker_id)
    assert row.worker_type == "DRIVER"
    assert worker_id in [one.worker_id for one in state.list_workers(filters=[("is_alive", "=", False)])]
    assert worker_id not in [one.worker_id for one in state.list_workers(filters=[("is_alive", "=", True)])]


def test_tasks_and_workers_of_an_actor_that_has_ended() -> None:
    @ray.remote(num_cpus=0)
    def of_the_actor() -> None: ...

    @ray.remote(num_cpus=0)
    class Parent:
        def work(self) -> str:
            ray.get(of_the_actor.remote())
            worker_id: str = ray.get_runtime_context().get_worker_id()
            return worker_id

        def crash(self) -> None:
            os._exit(3)

    parent, crashes = Parent.remote(), Parent.remote()
    ended, crashed = ray.get([parent.work.remote(), crashes.work.remote()])
    parent.__ray_terminate__.remote()
    crashes.crash.remote()
    assert eventually(lambda: all(not state.get_worker(one).is_alive for one in (ended, crashed)))
    assert state.get_worker(ended).exit_type.startswith("INTENDED")
    row = state.get_worker(crashed)
    assert row.exit_type == "SYSTEM_ERROR"
    assert row.worker_type == "WORKER"
    names = [row.name for row in state.list_tasks(filters=[("func_or_class_name", "=", "of_the_actor")])]
    assert "of_the_actor" in names
