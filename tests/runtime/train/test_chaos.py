"""A deterministic training ends as a quiet one does, though workers and controller are killed and the storage fails."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import tempfile
import threading
from typing import Any

import psutil
import pytest

from runtime import train
from runtime.train._api.trainer import DataParallelTrainer
from tests.runtime.train.flaky import failures, storage_in

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.timeout(240)]

STEPS, CONTROLLER_KILLS = 60, 2
KILLS = (10, 20, 20)
"""By rank. The others wait for rank 0, and the pause before a process is restarted grows when it dies again and
again."""


def controllers() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if "ControllerActor" in "".join(each.cmdline()):
                found.append(each)
    return found


def kill_controllers(folder: pathlib.Path, ended: threading.Event) -> None:
    """Kills the run's controller each time when some more workers have been killed."""
    for count in range(1, CONTROLLER_KILLS + 1):
        while len(list(folder.glob("killed-*"))) < count * sum(KILLS) // 4:
            if ended.wait(0.05):
                return
        for process in controllers():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def kills(config: dict[str, Any]) -> int:
    """The weights after all steps. Before some of them a rank kills itself, once; which, is chance with a seed."""
    context = train.get_context()
    rank, folder = context.get_world_rank(), pathlib.Path(config["folder"])
    state = {"step": 0, "weights": 1}
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as place:
            state = json.loads(pathlib.Path(place, "state.json").read_text())
    with (folder / f"begun-{rank}").open("a") as file:
        file.write(f"{state['step']}\n")
    while state["step"] < STEPS:
        step = state["step"] + 1
        for number, (when, who) in enumerate(config["kills"]):
            mark = folder / f"killed-{number}"
            if (when, who) == (step, rank) and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        state = {"step": step, "weights": (state["weights"] * 6364136223846793005 + step) % 2**64}
        if rank:
            train.report(state)
            continue
        with tempfile.TemporaryDirectory() as own:
            pathlib.Path(own, "state.json").write_text(json.dumps(state))
            train.report(state, checkpoint=train.Checkpoint.from_directory(own))
    return state["weights"]


def trained(folder: pathlib.Path, chosen: list[tuple[int, int]], **storage: Any) -> Any:
    folder.mkdir()
    return DataParallelTrainer(
        kills,
        train_loop_config={"folder": str(folder), "kills": chosen},
        scaling_config=train.ScalingConfig(num_workers=len(KILLS), resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(
            **storage,
            failure_config=train.FailureConfig(max_failures=-1),
            checkpoint_config=train.CheckpointConfig(num_to_keep=3),
        ),
    ).fit()


def test_the_weights_are_those_of_a_quiet_run(tmp_path: pathlib.Path) -> None:
    quiet = trained(tmp_path / "quiet", [], storage_path=str(tmp_path / "runs"))
    rng = random.Random(20)
    chosen = [(step, rank) for rank, count in enumerate(KILLS) for step in rng.sample(range(2, STEPS), count)]
    fails = storage_in(tmp_path / "remote")
    ended = threading.Event()
    killer = threading.Thread(target=kill_controllers, args=(tmp_path / "chaos", ended))
    killer.start()
    try:
        result = trained(tmp_path / "chaos", chosen, storage_path="runs", storage_filesystem=fails)
    finally:
        ended.set()
        killer.join()
    assert result.return_value == quiet.return_value
    assert result.metrics["step"] == STEPS
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [STEPS - 2, STEPS - 1, STEPS]
    assert len(list((tmp_path / "chaos").glob("killed-*"))) >= 45
    assert failures(tmp_path / "remote") >= 10
    left = [path.name for path in (tmp_path / "remote/runs").glob("*/checkpoint_*")]
    assert len(left) == 3, "old or unfinished checkpoints are there"
    begun = [int(line) for line in (tmp_path / "chaos" / "begun-0").read_text().splitlines()]
    assert begun == sorted(begun), "a committed checkpoint was lost"
