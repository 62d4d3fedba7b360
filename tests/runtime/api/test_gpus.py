"""GPUs and other accelerators that are declared by number: who gets which, and how a process is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually, stays
from tests.under_test import init, ray, scheduling_strategies, util

CUDA = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def session(no_leaks: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CUDA, raising=False)
        init(num_cpus=8, num_gpus=4, resources={"TPU": 4, "neuron_cores": 2, "HPU": 2, "NPU": 2})
        yield
        ray.shutdown()


@pytest.fixture
def fresh() -> Iterator[None]:
    ray.shutdown()
    yield
    ray.shutdown()


@ray.remote
def seen() -> dict[str, Any]:
    context = ray.get_runtime_context()
    return {
        "gpus": ray.get_gpu_ids(),
        "ids": {name: ids for name, ids in context.get_accelerator_ids().items() if ids},
        "held": context.get_assigned_resources(),
        "env": {name: value for name, value in os.environ.items() if "VISIBLE" in name or "TPU_" in name},
    }


@ray.remote(num_gpus=1)
class Holder:
    def gpus(self) -> list[int]:
        return ray.get_gpu_ids()

    def env(self) -> str | None:
        return os.environ.get(CUDA)

    def held(self) -> dict[str, float]:
        return ray.get_runtime_context().get_assigned_resources()


def free() -> float:
    return ray.available_resources().get("GPU", 0)


@pytest.mark.usefixtures("session")
class TestDevices:
    def test_none_by_default(self) -> None:
        found = ray.get(seen.remote())
        assert (found["gpus"], found["ids"], found["env"]) == ([], {}, {})
        assert ray.get_gpu_ids() == []

    @pytest.mark.parametrize(("amount", "count"), [(1, 1), (0.5, 1), (2, 2), (4, 4)])
    def test_as_many_as_asked_for(self, amount: float, count: int) -> None:
        found = ray.get(seen.options(num_gpus=amount).remote())
        assert len(set(found["gpus"])) == count
        assert all(isinstance(gpu, int) for gpu in found["gpus"])
        assert found["ids"] == {"GPU": [str(gpu) for gpu in found["gpus"]]}
        assert found["held"] == {"CPU": 1, "GPU": amount}
        assert found["env"] == {CUDA: ",".join(map(str, found["gpus"]))}

    def test_whoever_comes_next_sees_none(self) -> None:
        ray.get([seen.options(num_gpus=1).remote() for _ in range(8)])
        for found in ray.get([seen.remote() for _ in range(8)]):
            assert (found["gpus"], found["env"]) == ([], {})

    @pytest.mark.parametrize(
        ("resource", "amount", "variable", "others"),
        [
            (
                "TPU",
                1,
                "TPU_VISIBLE_CHIPS",
                {"TPU_CHIPS_PER_HOST_BOUNDS": "1,1,1", "TPU_HOST_BOUNDS": "1,1,1"},
            ),
            (
                "TPU",
                2,
                "TPU_VISIBLE_CHIPS",
                {"TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1", "TPU_HOST_BOUNDS": "1,1,1"},
            ),
            ("TPU", 4, "TPU_VISIBLE_CHIPS", {}),
            ("neuron_cores", 1, "NEURON_RT_VISIBLE_CORES", {}),
            ("HPU", 2, "HABANA_VISIBLE_MODULES", {}),
            ("NPU", 0.5, "ASCEND_RT_VISIBLE_DEVICES", {}),
        ],
    )
    def test_other_kinds(self, resource: str, amount: float, variable: str, others: dict[str, str]) -> None:
        found = ray.get(seen.options(resources={resource: amount}).remote())
        ids = found["ids"][resource]
        assert len(ids) == max(amount, 1)
        assert set(ids) <= set("0123")
        assert found["env"] == {variable: ",".join(ids), **others}
        assert found["gpus"] == []

    def test_actors_have_gpus_of_their_own(self) -> None:
        assert eventually(lambda: free() == 4)
        actors = [Holder.remote() for _ in range(4)]
        ids = ray.get([actor.gpus.remote() for actor in actors])
        assert sorted(ids) == [[0], [1], [2], [3]]
        assert ray.get([actor.env.remote() for actor in actors]) == [str(one[0]) for one in ids]
        assert ray.get(actors[0].held.remote()) == {"CPU": 1, "GPU": 1}
        waiting = Holder.remote().gpus.remote()
        assert ray.wait([waiting], timeout=0.2)[0] == []
        ray.kill(actors[2])
        assert ray.get(waiting, timeout=60) == ids[2]
        del waiting
        for actor in actors:
            ray.kill(actor)

    def test_fractions_share(self) -> None:
        assert eventually(lambda: free() == 4)
        actors = [Holder.options(num_gpus=0.5).remote() for _ in range(8)]
        ids = [one[0] for one in ray.get([actor.gpus.remote() for actor in actors])]
        assert sorted(ids) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert eventually(lambda: free() == 0)
        for actor in actors:
            ray.kill(actor)
        assert eventually(lambda: free() == 4)

    def test_groups_hand_out_what_they_set_aside(self) -> None:
        assert eventually(lambda: free() == 4)
        in_group = scheduling_strategies.PlacementGroupSchedulingStrategy
        group = util.placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 2}])
        assert group.wait(30)
        used = []
        for index, amount in ((0, 1), (1, 2)):
            task = seen.options(num_gpus=amount, scheduling_strategy=in_group(group, index))
            found = ray.get(task.remote())
            assert found["held"] == {"CPU": 1, "GPU": amount}
            assert found["env"] == {CUDA: ",".join(map(str, found["gpus"]))}
            used += found["gpus"]
        assert len(set(used)) == 3
        outside = ray.get(seen.options(num_gpus=1).remote())
        assert outside["gpus"][0] not in used
        util.remove_placement_group(group)
        assert eventually(lambda: free() == 4)

    @pytest.mark.parametrize(
        "bundles", [[{"CPU": 1, "GPU": 1}, {"CPU": 1}], [{"CPU": 1}, {"CPU": 1, "GPU": 1}]]
    )
    def test_cpu_actors_leave_the_bundle_with_the_gpu_alone(self, bundles: list[dict[str, float]]) -> None:
        assert eventually(lambda: free() == 4)
        group = util.placement_group(bundles)
        assert group.wait(30)
        inside = scheduling_strategies.PlacementGroupSchedulingStrategy(group)
        on_cpu = Holder.options(num_cpus=1, num_gpus=0, scheduling_strategy=inside).remote()
        assert ray.get(on_cpu.gpus.remote(), timeout=60) == []
        on_gpu = Holder.options(num_cpus=1, num_gpus=1, scheduling_strategy=inside).remote()
        assert len(ray.get(on_gpu.gpus.remote(), timeout=60)) == 1
        util.remove_placement_group(group)
        assert eventually(lambda: free() == 4)

    def test_tasks_with_and_without_gpus_share_no_process(self) -> None:
        @ray.remote
        def pid() -> int:
            return os.getpid()

        seen_by: dict[int, set[int]] = {0: set(), 1: set()}
        for gpus in (0, 1, 0, 1):
            assert eventually(
                lambda: stays(lambda: ray.available_resources().get("CPU") == 8)
            )  # all are idle
            seen_by[gpus] |= set(
                ray.get([pid.options(num_gpus=gpus).remote() for _ in range(20)], timeout=60)
            )
        assert not seen_by[0] & seen_by[1]

    def test_a_task_that_says_so_keeps_its_variable(self) -> None:
        noset = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
        found = ray.get(seen.options(num_gpus=1, runtime_env=noset).remote(), timeout=60)
        assert len(found["gpus"]) == 1
        assert CUDA not in found["env"]

    def test_without_gpus_none_are_visible_when_asked(self) -> None:
        override = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}}
        found = ray.get(seen.options(runtime_env=override).remote(), timeout=60)
        assert found["env"][CUDA] == ""


def test_a_node_that_sees_few_hands_out_those(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUDA, "4,6,7")
    init(num_cpus=2, num_gpus=2)
    assert ray.cluster_resources()["GPU"] == 2
    found = ray.get(seen.options(num_gpus=2).remote())
    assert sorted(found["gpus"]) == ["4", "6"]
    assert sorted(found["env"][CUDA].split(",")) == ["4", "6"]


def test_a_node_cannot_have_more_than_it_sees(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUDA, "4")
    with pytest.raises(ValueError, match=CUDA):
        init(num_cpus=2, num_gpus=2)


def test_a_blocked_task_keeps_its_gpu(fresh: None) -> None:
    init(num_cpus=1, num_gpus=1)

    @ray.remote(num_gpus=1)
    def inner() -> None:
        pass

    @ray.remote(num_gpus=1)
    def outer() -> int:
        ready, _ = ray.wait([inner.remote()], timeout=0.5)
        return len(ready)

    assert ray.get(outer.remote(), timeout=60) == 0
