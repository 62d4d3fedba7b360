"""Where the workers of a run are, on a cluster of several nodes."""

from __future__ import annotations

import importlib
import itertools
import os
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from runtime import train
from runtime._extension.store import stores
from runtime._session.ask import ask_control
from runtime._wire.messages.control import DrainNode
from runtime.train._api.trainer import DataParallelTrainer
from tests.polling import eventually
from tests.runtime.train.flaky import files_read, slow_storage_in
from tests.under_test import NAME, ray

DEADLINE_MS = 4_000_000_000_000
"""When a machine goes that is taken away."""


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[Any]:
    made = importlib.import_module(f"{NAME}.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0}
    )
    try:
        made.add_node(num_cpus=2, labels={"zone": "west"}, resources={"accelerator_type:A100": 1})
        made.east = made.add_node(num_cpus=2, labels={"zone": "east"}, resources={"licence": 2})
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def fit(folder: pathlib.Path, function: Any, **scaling: Any) -> Any:
    return DataParallelTrainer(
        function,
        scaling_config=train.ScalingConfig(**scaling),
        run_config=train.RunConfig(storage_path=str(folder)),
    ).fit()


@ray.remote
class Blocker:
    def ready(self) -> None:
        pass


def zone() -> str:
    labels: dict[str, str] = ray.get_runtime_context().get_node_labels()
    return labels["zone"]


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"label_selector": {"zone": "east"}}, "east"),
        ({"label_selector": [{"zone": "west"}]}, "west"),
        ({"accelerator_type": "A100"}, "west"),
        ({"resources_per_worker": {"licence": 2, "memory": 1 << 20}}, "east"),
    ],
)
def test_workers_are_where_they_are_wanted(
    cluster: Any, tmp_path: pathlib.Path, scaling: dict[str, Any], expected: str
) -> None:
    assert fit(tmp_path, zone, **scaling).return_value == expected


def counts(config: dict[str, Any]) -> int:
    """Ends when it runs on three workers; counts the processes that have been in a run."""
    context = train.get_context()
    folder = pathlib.Path(config["folder"])
    (folder / f"{os.getpid()}-{context.get_world_size()}").touch()
    step = 0
    while context.get_world_size() < 3:
        (folder / "running").touch()
        train.report({"step": step})
        time.sleep(0.02)
    return context.get_world_size()


def test_a_run_grows_when_there_is_room_and_its_workers_keep_their_processes(
    cluster: Any, tmp_path: pathlib.Path
) -> None:
    blocker = Blocker.options(num_cpus=2, label_selector={"zone": "east"}).remote()
    ray.get(blocker.ready.remote())
    assert eventually(lambda: ray.available_resources().get("CPU") == 2)
    marks = tmp_path / "marks"
    marks.mkdir()

    def release() -> None:
        assert eventually(lambda: (marks / "running").exists())
        ray.kill(blocker)

    releasing = threading.Thread(target=release)
    releasing.start()
    result = DataParallelTrainer(
        counts,
        train_loop_config={"folder": str(marks)},
        scaling_config=train.ScalingConfig(num_workers=(1, 3), elastic_resize_monitor_interval_s=0.2),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    releasing.join()
    assert result.return_value == 3
    seen = [name.name.split("-") for name in marks.glob("*-*")]
    before = {pid for pid, size in seen if size == "2"}
    after = {pid for pid, size in seen if size == "3"}
    assert len(before) == 2
    assert len(after) == 3
    assert before < after


def saves_when_told(config: dict[str, Any]) -> int:
    """Saves a checkpoint when its machine is to be taken away; ends when it goes on from it."""
    folder = pathlib.Path(config["folder"])
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as saved:
            return int(pathlib.Path(saved, "step").read_text())
    (folder / f"on-{ray.get_runtime_context().get_node_id()}").touch()
    for step in itertools.count():
        train.report({"step": step})
        time.sleep(0.02)
        info = train.get_preemption_info()
        if info is not None:
            assert info.preempted_ranks == [0]
            assert info.deadline_ms == DEADLINE_MS
            (folder / "own").mkdir()
            (folder / "own" / "step").write_text(str(step))
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(str(folder / "own")))
            (folder / "saved").touch()
            time.sleep(600)
    return 0


def test_a_machine_that_is_taken_away_lets_the_function_save_and_is_no_failure(
    cluster: Any, tmp_path: pathlib.Path
) -> None:
    def take_away() -> None:
        assert eventually(lambda: [*tmp_path.glob("on-*")])
        node = next(tmp_path.glob("on-*")).name.removeprefix("on-")
        secret = pathlib.Path(cluster._secret_file).read_bytes().strip()
        drain = DrainNode(
            bytes.fromhex(node), "it is wanted elsewhere", only_if_idle=False, deadline_ms=DEADLINE_MS
        )
        ask_control(cluster.address, secret, drain)
        assert eventually(lambda: (tmp_path / "saved").exists())
        cluster.remove_node(cluster.east, allow_graceful=False)
        cluster.east = cluster.add_node(num_cpus=2, labels={"zone": "east"}, resources={"licence": 2})

    taking = threading.Thread(target=take_away)
    taking.start()
    result = DataParallelTrainer(
        saves_when_told,
        train_loop_config={"folder": str(tmp_path)},
        scaling_config=train.ScalingConfig(label_selector={"zone": "east"}),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    taking.join()
    assert result.return_value == result.metrics["step"]


def goes_on(config: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """Each rank saves a file; then the node of rank 1 is taken away. Ends when it goes on from the checkpoint."""
    folder, rank = pathlib.Path(config["folder"]), train.get_context().get_world_rank()
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as found:
            return zone(), {each.name: len(each.read_bytes()) for each in pathlib.Path(found).glob("rank_*")}
    own = folder / f"own-{rank}"
    own.mkdir()
    (own / f"rank_{rank}").write_bytes(bytes([rank]) * 1_000_000)
    train.report({}, checkpoint=train.Checkpoint.from_directory(own))
    train.collective.barrier()  # second copies are on their way
    (folder / f"saved-{zone()}").touch()
    time.sleep(600)
    raise AssertionError("nobody has taken the node away")


def test_a_restart_reads_the_latest_checkpoint_from_object_stores(
    cluster: Any, tmp_path: pathlib.Path
) -> None:
    storage = slow_storage_in(tmp_path / "remote")

    def held() -> bool:
        """Whether each node has both files, 1 MB each."""
        used = [each.used_bytes for each in stores() if each.node_id != cluster.head_node.node_id]
        return len(used) == 2 and min(used) > 2_000_000

    def take_away() -> None:
        assert eventually(lambda: (tmp_path / "saved-east").exists() and held())
        cluster.remove_node(cluster.east, allow_graceful=False)
        cluster.east = cluster.add_node(num_cpus=2, labels={"zone": "east"}, resources={"licence": 2})

    taking = threading.Thread(target=take_away)
    taking.start()
    result = DataParallelTrainer(
        goes_on,
        train_loop_config={"folder": str(tmp_path)},
        scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=train.RunConfig(
            storage_path="runs",
            storage_filesystem=storage,
            failure_config=train.FailureConfig(max_failures=1),
        ),
    ).fit()
    taking.join()
    assert result.return_value[1] == {"rank_0": 1_000_000, "rank_1": 1_000_000}
    assert not [name for name in files_read(tmp_path / "remote") if name.startswith("rank_")]


def until_alone(config: dict[str, Any]) -> int:
    """Ends when it has become the only rank."""
    size = train.get_context().get_world_size()
    pathlib.Path(config["folder"], f"of-{size}").touch()
    while size == 2:
        train.report({"size": size})
        time.sleep(0.02)
    return size


def test_a_run_goes_on_with_fewer_workers_when_a_node_is_gone(cluster: Any, tmp_path: pathlib.Path) -> None:
    def remove() -> None:
        assert eventually(lambda: (tmp_path / "of-2").exists())
        cluster.remove_node(cluster.east, allow_graceful=False)

    assert eventually(
        lambda: ray.available_resources().get("CPU") == 4
    )  # it begins with as many as have room
    removing = threading.Thread(target=remove)
    removing.start()
    result = DataParallelTrainer(
        until_alone,
        train_loop_config={"folder": str(tmp_path)},
        scaling_config=train.ScalingConfig(
            num_workers=(1, 2), resources_per_worker={"CPU": 2}, elastic_resize_monitor_interval_s=0.5
        ),
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "runs"), failure_config=train.FailureConfig(max_failures=1)
        ),
    ).fit()
    removing.join()
    assert result.return_value == 1
