"""The workloads of train.py through what a user would take instead of a training library: torchrun, `torch.save`,
torch.distributed.checkpoint, a DataLoader. Run as a program, this is what torchrun starts."""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import train_work as work
from data_input import MIB
from data_measuring import Timing
from store_watch import MemoryWatch
from train_workloads import HOLD_S, KILLS, WORKERS, note_training

TORCHRUN = "torchrun"
RESTARTS = 5
"""After a kill its workers often fail once more, as they do not reach the new place to meet."""
REPORTS = 2000
TORCHRUN_S = 200.0


class Anchors:
    """Of what is installed here.

    Args:
        timing: of them.
    """

    def __init__(self, timing: Timing) -> None:
        self.t = timing
        self.m = timing.m
        self._home = Path(tempfile.mkdtemp(prefix="bench-train-"))

    def run(self) -> None:
        try:
            for part in (
                self.cold,
                self.ddp,
                self.reports,
                self.checkpoints,
                self.kills,
                self.shards,
                self.memory,
            ):
                self.m.guard(part)
        finally:
            shutil.rmtree(self._home, ignore_errors=True)

    def cold(self) -> None:
        for workers, label in WORKERS.items():
            name = f"empty fit, {label}, cold"
            self.t.take(name, lambda workers=workers: self._torchrun("nothing", workers)[0], TORCHRUN)

    def ddp(self) -> None:
        def part() -> None:
            note_training(self.m, *self._torchrun("training", 2), TORCHRUN)

        self.t.together(["DDP: fit", "DDP: loop", "DDP: a step"], part, TORCHRUN)

    def reports(self) -> None:
        """A barrier, and a line in a log."""
        for workers, label in WORKERS.items():

            def take(workers: int = workers) -> float:
                _, folder = self._torchrun("reports", workers)
                return float(work.read(folder, "rate-0")["rate"])

            self.t.take(f"reports, {label}", take, TORCHRUN)

    def checkpoints(self) -> None:
        for label, tool, part in (
            ("checkpoints", "torch.save", self._saved),
            ("asynchronous checkpoints", "async_save", self._saved_asynchronously),
        ):
            names = [f"{label}: stall", f"{label}: fit"]
            self.t.together(names, functools.partial(self._checkpoints, names, tool, part), tool)

    def _checkpoints(self, names: list[str], tool: str, part: Callable[[Path], list[float]]) -> None:
        folder = Path(tempfile.mkdtemp(dir=self._home))
        start = time.perf_counter()
        stalls = part(folder)
        self.m.note(names[0], statistics.median(stalls), tool)
        self.m.note(names[1], time.perf_counter() - start, tool)
        shutil.rmtree(folder)

    def _saved(self, folder: Path) -> list[float]:
        import torch

        def save(state: Any, number: int) -> None:
            torch.save(state, folder / "draft")
            (folder / "draft").rename(folder / str(number))

        stalls = _with_other_work(save)
        work.check_state(torch.load(folder / str(work.CHECKPOINTS - 1)))
        return stalls

    def _saved_asynchronously(self, folder: Path) -> list[float]:
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        pending: list[Any] = []
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)

        def save(state: Any, number: int) -> None:
            if pending:
                pending.pop().result()
            pending.append(dcp.async_save(state, checkpoint_id=str(folder / str(number))))

        try:
            stalls = _with_other_work(save)
            pending.pop().result()
            state = work.large_state(0)
            dcp.load(state, checkpoint_id=str(folder / str(work.CHECKPOINTS - 1)))
            work.check_state(state)
        finally:
            dist.destroy_process_group()
        return stalls

    def kills(self) -> None:
        """Saved by a file that is replaced; a barrier after it."""
        for pause_s, label in KILLS.items():
            names = [f"a worker killed {label}: next step", f"a worker killed {label}: repeated"]

            def part(names: list[str] = names, pause_s: float = pause_s) -> None:
                _, folder = self._torchrun("through_a_kill", 2, str(pause_s))
                for name, value in zip(names, work.check_kill(folder, 2), strict=True):
                    self.m.note(name, value, TORCHRUN)

            self.t.together(names, part, TORCHRUN)

    def shards(self) -> None:
        names = ["data shards, first epoch", "data shards, second epoch"]
        self.t.together(names, functools.partial(self._shards, names), "DataLoader")

    def _shards(self, names: list[str]) -> None:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        array = work.rows_to_share()
        dataset = TensorDataset(torch.from_numpy(array))
        loader = DataLoader(dataset, batch_size=work.SHARD_BATCH, num_workers=2, persistent_workers=True)
        for name in names:
            rows, total, start = 0, 0.0, time.perf_counter()
            for (batch,) in loader:
                rows += len(batch)
                total += batch.double().sum().item()
            self.m.note(name, rows / (time.perf_counter() - start), "DataLoader")
            work.check_rows(rows, total, array)

    def memory(self) -> None:
        def take() -> float:
            with MemoryWatch() as watch:
                self._torchrun("hold", 2)
            return watch.peak_bytes / MIB

        self.t.take("memory: peak with 2 workers", take, TORCHRUN)

    def _torchrun(self, what: str, workers: int, *arguments: str) -> tuple[float, Path]:
        """Its seconds, and the folder that the workers wrote to."""
        folder = Path(tempfile.mkdtemp(dir=self._home))
        command = [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nproc-per-node", str(workers), "--max-restarts", str(RESTARTS), "--monitor-interval", "0.1"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"),
            *(__file__, what, str(folder), *arguments),
        ]
        start = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            timeout=TORCHRUN_S,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return time.perf_counter() - start, folder


def _with_other_work(save: Callable[[Any, int], None]) -> list[float]:
    """Seconds that each checkpoint takes from the loop."""
    stalls = []
    for number in range(work.CHECKPOINTS):
        state = work.large_state(number)
        time.sleep(work.OTHER_WORK_S)
        start = time.perf_counter()
        save(state, number)
        stalls.append(time.perf_counter() - start)
    return stalls


# ------------------------------------------------------------ started by torchrun


def worker(what: str, folder: Path, *arguments: str) -> None:
    """One rank."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    match what:
        case "hold":
            time.sleep(HOLD_S)
        case "training":
            found = work.train(DistributedDataParallel(work.network()), rank, world_size)
            work.write(folder, f"trained-{rank}", found)
        case "reports":
            start = time.perf_counter()
            with open(folder / f"log-{rank}", "w") as log:
                for number in range(REPORTS):
                    dist.barrier()
                    log.write(f"{number}\n")
                    log.flush()
            work.write(folder, f"rate-{rank}", {"rate": REPORTS / (time.perf_counter() - start)})
        case "through_a_kill":

            def save(state: work.State) -> None:
                if rank == 0:
                    work.write(folder, "state", state)
                dist.barrier()

            state = work.read(folder, "state") if (folder / "state").exists() else None
            work.go_through_a_kill(folder, float(arguments[0]), rank, state, save)
    dist.destroy_process_group()


if __name__ == "__main__":
    worker(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
