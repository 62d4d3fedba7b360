"""The workloads of train.py through a module with Ray Train's API: the functions that its workers run, and how they are
timed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import train_work as work
from comparison import Measuring
from data_input import MIB
from data_measuring import Timing, require
from store_watch import MemoryWatch, memory_bytes

WORKERS = {1: "1 worker", 2: "2 workers"}
KILLS = {0.0: "at once after its report", 5.0: "5 s after its report"}
HOLD_S = 4.0
SETTLE_S = 2.0
MOST_REPORTS = 20_000
Config = dict[str, Any]


# ------------------------------------------------------------ run by the workers


def library(config: Config, name: str = "train") -> Any:
    return importlib.import_module(f"{config['module']}.{name}")


def rank_of(train: Any) -> int:
    return int(train.get_context().get_world_rank())


def nothing(config: Config) -> None:
    pass


def hold(config: Config) -> None:
    time.sleep(HOLD_S)


def training(config: Config) -> None:
    train = library(config)
    context = train.get_context()
    model = library(config, "train.torch").prepare_model(work.network())
    found = work.train(model, context.get_world_rank(), context.get_world_size())
    train.report(found)
    work.write(Path(config["folder"]), f"trained-{context.get_world_rank()}", found)


def reports(config: Config) -> None:
    """Reports for as long as it is told: rank 0 finds out how many that are, as all ranks must give the same."""
    train, folder = library(config), Path(config["folder"])
    rank = rank_of(train)
    for _ in range(2):
        train.report({"number": -1})
    start = time.perf_counter()
    for _ in range(2):
        train.report({"number": -1})
    if rank == 0:
        most = int(2 * config["seconds"] / (time.perf_counter() - start))
        work.write(folder, "count", {"count": max(2, min(MOST_REPORTS, most))})
    while not (folder / "count").exists():
        time.sleep(0.001)
    count = work.read(folder, "count")["count"]
    start = time.perf_counter()
    for number in range(count):
        train.report({"number": number})
    rate = count / (time.perf_counter() - start)
    work.write(folder, f"rate-{rank}", {"rate": rate})


def checkpoints(config: Config) -> None:
    import torch

    train, folder, stalls = library(config), Path(config["folder"]), []
    options = {}
    if config["asynchronous"]:
        options["checkpoint_upload_mode"] = train.CheckpointUploadMode.ASYNC
        options["delete_local_checkpoint_after_upload"] = True
    for number in range(work.CHECKPOINTS):
        state = work.large_state(number)
        time.sleep(work.OTHER_WORK_S)
        start = time.perf_counter()
        own = tempfile.mkdtemp(dir=folder)
        torch.save(state, Path(own, "state.pt"))
        train.report({"number": number}, checkpoint=train.Checkpoint.from_directory(own), **options)
        stalls.append(time.perf_counter() - start)
    work.write(folder, "stalls", {"stalls": stalls})


def through_a_kill(config: Config) -> None:
    train, state = library(config), None
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = work.read(Path(folder), "state.json")
    rank = rank_of(train)

    def save(state: work.State) -> None:
        if rank:
            train.report(state)
            return
        with tempfile.TemporaryDirectory() as folder:
            work.write(Path(folder), "state.json", state)
            train.report(state, checkpoint=train.Checkpoint.from_directory(folder))

    work.go_through_a_kill(Path(config["folder"]), config["pause_s"], rank, state, save)


def shards(config: Config) -> None:
    train, epochs = library(config), []
    shard = train.get_dataset_shard("train")
    for _ in range(2):
        rows, total, start = 0, 0.0, time.time()
        for batch in shard.iter_torch_batches(batch_size=work.SHARD_BATCH):
            rows += len(batch["data"])
            total += batch["data"].double().sum().item()
        epochs.append({"rows": rows, "total": total, "start": start, "end": time.time()})
    work.write(Path(config["folder"]), f"epochs-{rank_of(train)}", {"epochs": epochs})


# ------------------------------------------------------------ timed


class Workloads:
    """Of one engine.

    Args:
        timing: of it.
        seconds: of reports.
    """

    def __init__(self, timing: Timing, seconds: float) -> None:
        self.t = timing
        self.m: Measuring = timing.m
        self._seconds = seconds
        self._train: Any = importlib.import_module(f"{self.m.module}.train")
        self._torch: Any = importlib.import_module(f"{self.m.module}.train.torch")
        self._home = Path(tempfile.mkdtemp(prefix="bench-train-"))

    def run(self) -> None:
        """Everything, on one cluster."""
        self.m.init(2)
        try:
            self._fit(nothing, 1)  # what only the first fit of a process does
            for part in (
                self.warm,
                self.ddp,
                self.reports,
                self.checkpoints,
                self.kills,
                self.shards,
                self.memory,
            ):
                self.m.guard(part)
        finally:
            with contextlib.suppress(Exception):
                self.m.ray.shutdown()
            shutil.rmtree(self._home, ignore_errors=True)

    def warm(self) -> None:
        for workers, label in WORKERS.items():
            take = functools.partial(self._fit_s, nothing, workers)
            self.t.take(
                f"empty fit, {label}",
                lambda take=take: statistics.median(take() for _ in range(self.m.rounds)),
            )

    def ddp(self) -> None:
        def part() -> None:
            _, seconds, folder = self._fit(training, 2)
            note_training(self.m, seconds, folder)

        self.t.together(["DDP: fit", "DDP: loop", "DDP: a step"], part)

    def reports(self) -> None:
        for workers, label in WORKERS.items():
            self.t.take(f"reports, {label}", functools.partial(self._reports_of, workers))

    def _reports_of(self, workers: int) -> float:
        seen = Path(tempfile.mkdtemp(dir=self._home), "seen")

        class Seen(self._train.UserCallback):  # type: ignore[misc,name-defined]
            def after_report(self, run_context: Any, metrics: list[Config], checkpoint: Any) -> None:
                with open(seen, "a") as log:
                    log.write(json.dumps([each["number"] for each in metrics]) + "\n")

        _, _, folder = self._fit(reports, workers, {"seconds": self._seconds}, callbacks=[Seen()])
        count = work.read(folder, "count")["count"]
        numbers = [json.loads(line) for line in seen.read_text().splitlines()]
        expected = [[number] * workers for number in (-1, -1, -1, -1, *range(count))]
        require(numbers == expected, f"{len(numbers)} reports, lost or out of order, of {len(expected)}")
        return float(min(work.read(folder, f"rate-{rank}")["rate"] for rank in range(workers)))

    def checkpoints(self) -> None:
        for asynchronous, label in ((False, "checkpoints"), (True, "asynchronous checkpoints")):
            names = [f"{label}: stall", f"{label}: fit"]
            self.t.together(names, functools.partial(self._checkpoints, names, asynchronous))

    def _checkpoints(self, names: list[str], asynchronous: bool) -> None:
        import torch

        kept = self._train.CheckpointConfig(num_to_keep=2)
        result, seconds, folder = self._fit(
            checkpoints, 1, {"asynchronous": asynchronous}, checkpoint_config=kept
        )
        with result.checkpoint.as_directory() as path:
            work.check_state(torch.load(Path(path, "state.pt")))
        require(
            len(result.best_checkpoints) == 2, f"{len(result.best_checkpoints)} checkpoints are kept, not 2"
        )
        stalls = work.read(folder, "stalls")["stalls"]
        self.m.note(names[0], statistics.median(stalls))
        self.m.note(names[1], seconds)
        shutil.rmtree(result.path, ignore_errors=True)

    def kills(self) -> None:
        for pause_s, label in KILLS.items():
            names = [f"a worker killed {label}: next step", f"a worker killed {label}: repeated"]
            self.t.together(names, functools.partial(self._kill, names, pause_s))

    def _kill(self, names: list[str], pause_s: float) -> None:
        failures = self._train.FailureConfig(max_failures=1)
        result, _, folder = self._fit(through_a_kill, 2, {"pause_s": pause_s}, failure_config=failures)
        require(result.metrics["step"] == work.SAVED_STEPS, f"the last metrics are {result.metrics}")
        for name, value in zip(names, work.check_kill(folder, 2), strict=True):
            self.m.note(name, value)

    def shards(self) -> None:
        names = ["data shards, first epoch", "data shards, second epoch"]
        self.t.together(names, functools.partial(self._shards, names))

    def _shards(self, names: list[str]) -> None:
        data = importlib.import_module(f"{self.m.module}.data")
        array = work.rows_to_share()
        piece = len(array) // 8
        pieces = [array[first : first + piece] for first in range(0, len(array), piece)]
        _, _, folder = self._fit(
            shards, 2, resources={"CPU": 0.5}, datasets={"train": data.from_numpy(pieces)}
        )
        ranks = [work.read(folder, f"epochs-{rank}")["epochs"] for rank in range(2)]
        for name, epoch in zip(names, zip(*ranks, strict=True), strict=True):
            work.check_rows(sum(each["rows"] for each in epoch), sum(each["total"] for each in epoch), array)
            seconds = max(each["end"] for each in epoch) - min(each["start"] for each in epoch)
            self.m.note(name, len(array) / seconds)

    def memory(self) -> None:
        names = ["memory: peak with 2 workers", "memory: at rest after the runs"]

        def part() -> None:
            with MemoryWatch() as watch:
                self._fit(hold, 2)
            self.m.note(names[0], watch.peak_bytes / MIB)
            time.sleep(SETTLE_S)
            self.m.note(names[1], memory_bytes() / MIB)

        self.t.together(names, part)

    def _fit_s(self, function: Callable[[Config], None], workers: int) -> float:
        return self._fit(function, workers)[1]

    def _fit(
        self,
        function: Callable[[Config], None],
        workers: int,
        config: Config | None = None,
        resources: dict[str, float] | None = None,
        datasets: dict[str, Any] | None = None,
        **run: Any,
    ) -> tuple[Any, float, Path]:
        """The result, its seconds, and the folder that the workers wrote to."""
        folder = Path(tempfile.mkdtemp(dir=self._home))
        train = self._train
        trainer = self._torch.TorchTrainer(
            function,
            train_loop_config={"module": self.m.module, "folder": str(folder), **(config or {})},
            scaling_config=train.ScalingConfig(num_workers=workers, resources_per_worker=resources),
            run_config=train.RunConfig(name=uuid.uuid4().hex, storage_path=str(self._home / "runs"), **run),
            datasets=datasets,
        )
        start = time.perf_counter()
        result = trainer.fit()
        return result, time.perf_counter() - start, folder


def note_training(m: Measuring, seconds: float, folder: Path, tool: str = "") -> None:
    """The figures of a training by two ranks."""
    found = work.check_training(folder, 2)
    m.note("DDP: fit", seconds, tool)
    m.note("DDP: loop", found["loop_s"], tool)
    m.note("DDP: a step", 1000 * found["loop_s"] / found["steps"], tool)
