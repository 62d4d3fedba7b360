"""What a program can ask about itself and the cluster; init and shutdown."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import OWN, exceptions, init, ray


@ray.remote
def facts() -> dict[str, Any]:
    context = ray.get_runtime_context()
    return {
        "job": context.get_job_id(),
        "node": context.get_node_id(),
        "worker": context.get_worker_id(),
        "task": context.get_task_id(),
        "task_name": context.get_task_name(),
        "function": context.get_task_function_name(),
        "actor": context.get_actor_id(),
        "namespace": context.namespace,
        "resources": context.get_assigned_resources(),
        "group": context.get_placement_group_id(),
        "pid": os.getpid(),
    }


@ray.remote
def where() -> list[str]:
    context = ray.get_runtime_context()
    return [context.gcs_address, context.get_session_name(), context.get_temp_dir()]


@ray.remote(num_cpus=0)
class Actor:
    def facts(self) -> dict[str, Any]:
        context = ray.get_runtime_context()
        return {
            "actor": context.get_actor_id(),
            "name": context.get_actor_name(),
            "task": context.get_task_id(),
            "reconstructed": context.was_current_actor_reconstructed,
            "resources": context.get_assigned_resources(),
        }


@pytest.mark.usefixtures("session")
class TestInSession:
    def test_the_driver(self) -> None:
        context = ray.get_runtime_context()
        (node,) = ray.nodes()
        assert len(context.get_job_id()) == 8
        assert context.get_node_id() == node["NodeID"]
        assert len(context.get_worker_id()) == 56
        assert context.get_actor_id() is None
        assert context.get_task_id() is None

    def test_the_functions_of_an_actor_and_of_one_defined_inside(self) -> None:
        @ray.remote
        class Named:
            def __init__(self) -> None:
                self.made_by = ray.get_runtime_context().get_task_function_name()

            def names(self) -> list[str]:
                return [self.made_by, ray.get_runtime_context().get_task_function_name()]

        @ray.remote
        def inner() -> str:
            return str(ray.get_runtime_context().get_task_function_name())

        assert ray.get(Named.remote().names.remote()) == [
            f"{__name__}.Named.__init__",
            f"{__name__}.Named.names",
        ]
        assert ray.get(inner.remote()) == f"{__name__}.inner"

    def test_the_functions_of_an_async_actor_have_qualified_names(self) -> None:
        class Named:
            def __init__(self) -> None:
                self.made_by = ray.get_runtime_context().get_task_function_name()

            async def names(self) -> list[str]:
                return [self.made_by, ray.get_runtime_context().get_task_function_name()]

        assert ray.get(ray.remote(Named).remote().names.remote()) == [
            f"{__name__}.{Named.__qualname__}.__init__",
            f"{__name__}.{Named.__qualname__}.names",
        ]

    def test_where_the_session_is(self) -> None:
        context = ray.get_runtime_context()
        folder = os.path.join(context.get_temp_dir(), context.get_session_name())
        assert os.path.isdir(folder)
        assert context.get_session_name().startswith("session_")
        assert context.gcs_address
        assert ray.get(where.remote()) == [
            context.gcs_address,
            context.get_session_name(),
            context.get_temp_dir(),
        ]

    def test_a_task(self) -> None:
        context = ray.get_runtime_context()
        ref = facts.remote()
        told = ray.get(ref)
        assert told["job"] == context.get_job_id()
        assert told["node"] == context.get_node_id()
        assert told["worker"] != context.get_worker_id()
        assert told["task"] == ref.task_id().hex()
        assert told["task_name"] == "facts"
        assert told["function"] == f"{__name__}.facts"
        assert told["actor"] is None
        assert told["group"] is None
        assert told["namespace"] == context.namespace
        assert told["resources"] == {"CPU": 1.0}

    def test_resources_of_a_task_with_options(self) -> None:
        told = ray.get(facts.options(num_cpus=2).remote())
        assert told["resources"] == {"CPU": 2.0}

    def test_an_actor(self) -> None:
        actor = Actor.options(name="context-actor").remote()
        told = ray.get(actor.facts.remote())
        assert told["actor"] in repr(actor)
        assert told["name"] == "context-actor"
        assert told["task"].endswith(told["actor"])
        assert told["reconstructed"] is False
        ray.kill(actor)

    def test_no_current_actor_in_the_driver(self) -> None:
        with pytest.raises(RuntimeError):
            _ = ray.get_runtime_context().current_actor

    def test_cluster_resources(self) -> None:
        assert ray.cluster_resources()["CPU"] == 4
        assert ray.cluster_resources()["memory"] > 0
        assert ray.cluster_resources()["object_store_memory"] > 0
        assert ray.available_resources()["CPU"] <= 4

    def test_nodes(self) -> None:
        (node,) = ray.nodes()
        assert node["Alive"]
        assert node["Resources"]["CPU"] == 4
        assert {"NodeID", "NodeManagerAddress", "NodeManagerHostname", "Labels"} <= set(node)

    def test_a_second_init_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="ignore_reinit_error"):
            init()

    def test_a_second_init_may_be_ignored(self) -> None:
        init(ignore_reinit_error=True)
        assert ray.get(ray.put(1)) == 1

    def test_workers_are_initialized(self) -> None:
        assert ray.is_initialized()
        assert ray.get(ray.remote(ray.is_initialized).remote())


@ray.remote
def deprecated() -> tuple[Any, ...]:
    context = ray.get_runtime_context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            context.job_id.hex() == context.get_job_id(),
            context.node_id.hex() == context.get_node_id(),
            context.task_id.hex() == context.get_task_id(),
            context.actor_id,
            context.current_placement_group_id.is_nil(),
            context.get_resource_ids() == context.get_accelerator_ids(),
            set(context.get()),
        )


@pytest.mark.usefixtures("session")
class TestOlderNames:
    def test_in_a_task(self) -> None:
        told = ray.get(deprecated.remote())
        assert told[:6] == (True, True, True, None, True, True)
        assert {"job_id", "node_id", "namespace", "task_id"} <= told[6]

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_in_the_driver(self) -> None:
        context = ray.get_runtime_context()
        with pytest.warns(DeprecationWarning, match="get_job_id"):
            assert context.job_id.hex() == context.get_job_id()
        for ask in (
            lambda: context.task_id,
            lambda: context.actor_id,
            context.get_assigned_resources,
            lambda: context.was_current_actor_reconstructed,
        ):
            with pytest.raises(AssertionError, match="only available when the process is a"):
                ask()


@pytest.mark.usefixtures("fresh")
class TestLifecycle:
    def test_init_and_shutdown(self) -> None:
        assert not ray.is_initialized()
        context = init(num_cpus=1)
        assert ray.is_initialized()
        assert context.address_info["node_id"] == ray.nodes()[0]["NodeID"]
        ray.shutdown()
        assert not ray.is_initialized()

    def test_shutdown_twice_is_harmless(self) -> None:
        ray.shutdown()
        ray.shutdown()

    def test_sessions_follow_each_other(self) -> None:
        for cpus in (1, 2):
            init(num_cpus=cpus)
            assert ray.cluster_resources()["CPU"] == cpus
            assert ray.get(facts.remote())["resources"] == {"CPU": 1.0}
            ray.shutdown()

    @pytest.mark.skipif(not OWN, reason="Ray waits for ever")
    def test_references_of_an_ended_session(self) -> None:
        init(num_cpus=1)
        never = ray.remote(lambda: time.sleep(1000)).remote()
        small = ray.put(5)
        ray.shutdown()
        init(num_cpus=1)
        assert ray.get(small) == 5
        with pytest.raises(exceptions.RaySystemError, match=r"shutdown\(\)"):
            ray.get(never)

    @pytest.mark.skipif(not OWN, reason="Ray waits for ever")
    def test_futures_of_an_ended_session_end(self) -> None:
        async def wait_for(ref: Any) -> Any:
            return await ref

        init(num_cpus=1)
        never = ray.remote(lambda: time.sleep(1000)).remote()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            futures = [never.future() for _ in range(100)]
            futures.append(asyncio.run_coroutine_threadsafe(wait_for(never), loop))
            assert eventually(lambda: len(never._entry.callbacks) == len(futures))
            ray.shutdown()
            for future in concurrent.futures.as_completed(futures, timeout=60):
                with pytest.raises(exceptions.RaySystemError, match=r"shutdown\(\)"):
                    future.result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(60)
            loop.close()

    @pytest.mark.skipif(not OWN, reason="Ray waits for ever")
    def test_waits_of_an_ended_session_end(self) -> None:
        def pause() -> Iterator[int]:
            yield 1
            time.sleep(1000)

        def wait_for(position: int) -> None:
            waits = (lambda: next(generator), lambda: ray.get(never), lambda: ray.get([never]))
            began.release()
            try:
                waits[position]()
            except exceptions.RaySystemError as error:
                errors.append(error)

        init(num_cpus=2)
        never = ray.remote(lambda: time.sleep(1000)).remote()
        generator = ray.remote(pause).options(num_returns="streaming").remote()
        next(generator)
        began, errors = threading.Semaphore(0), []
        threads = [threading.Thread(target=wait_for, args=(position,)) for position in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert began.acquire(timeout=60)
        ray.shutdown()
        for thread in threads:
            thread.join(60)
        assert all("shut down" in str(error) or "shutdown()" in str(error) for error in errors)
        assert len(errors) == 3

    def test_as_a_context_manager(self) -> None:
        with init(num_cpus=1):
            assert ray.get(ray.put(1)) == 1
        assert not ray.is_initialized()

    def test_custom_resources(self) -> None:
        init(num_cpus=1, num_gpus=2, resources={"widget": 2})
        total = ray.cluster_resources()
        assert (total["GPU"], total["widget"]) == (2, 2)
        told = ray.get(facts.options(num_gpus=1, resources={"widget": 0.5}).remote())
        assert told["resources"] == {"CPU": 1.0, "GPU": 1.0, "widget": 0.5}

    def test_the_namespace_can_be_chosen(self) -> None:
        init(num_cpus=1, namespace="mine")
        assert ray.get_runtime_context().namespace == "mine"
        assert ray.get(facts.remote())["namespace"] == "mine"

    def test_unknown_arguments_are_refused(self) -> None:
        with pytest.raises(RuntimeError, match="no_such_argument"):
            init(no_such_argument=1)

    def test_no_cluster_to_join(self) -> None:
        with pytest.raises(ConnectionError):
            init(address="auto")

    def test_kill_before_init_starts_nothing_odd(self) -> None:
        with pytest.raises(ValueError):
            ray.get_actor("nobody")
