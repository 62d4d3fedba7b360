"""What the ranks of train.py compute, whoever runs them, and the checks of what they found."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from data_input import MIB
from data_measuring import require

CLASSES, FEATURES, ROWS, TEST_ROWS = 10, 64, 1437, 360
EPOCHS, BATCH = 60, 64
LEARNING_RATE, MOMENTUM = 0.02, 0.9
SAVED_STEPS, LOST_BEFORE_STEP = 6, 3
"""Rank 1 is killed when it begins this step, so that the steps before it are saved."""
CHECKPOINT_BYTES, CHECKPOINTS = 128 * MIB, 3
OTHER_WORK_S = 1.0
"""Between two checkpoints."""
SHARD_ROWS, SHARD_COLUMNS, SHARD_BATCH = 200_000, 128, 1024
State = dict[str, float]


def table() -> tuple[Any, Any]:
    """As large as scikit-learn's digits, and as hard: features and classes, the test's rows last."""
    import torch

    random = torch.Generator().manual_seed(1)
    centres = torch.rand(CLASSES, FEATURES, generator=random)
    classes = torch.randint(CLASSES, (ROWS + TEST_ROWS,), generator=random)
    noise = torch.randn(ROWS + TEST_ROWS, FEATURES, generator=random)
    return centres[classes] + 0.4 * noise, classes


def network() -> Any:
    """Two hidden layers of 256."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    hidden = [nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(256, CLASSES))


def train(model: Any, rank: int, world_size: int) -> dict[str, float]:
    """The ranks share each batch, so that their number changes nothing but the rounding."""
    import torch
    from torch.nn.functional import cross_entropy

    features, classes = table()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    steps, start = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch))
        for first in range(0, ROWS - BATCH + 1, BATCH):
            own = order[first : first + BATCH][rank::world_size]
            optimizer.zero_grad()
            cross_entropy(model(features[own]), classes[own]).backward()
            optimizer.step()
            steps += 1
    loop_s = time.perf_counter() - start
    with torch.no_grad():
        hits = model(features[ROWS:]).argmax(1) == classes[ROWS:]
        weights = sum(float(parameter.abs().sum()) for parameter in model.parameters())
    return {"loop_s": loop_s, "steps": steps, "accuracy": float(hits.float().mean()), "weights": weights}


def check_training(folder: Path, ranks: int) -> dict[str, float]:
    """What the slowest rank wrote to the folder, if all have found what one process alone finds."""
    alone = train(network(), 0, 1)
    require(alone["accuracy"] > 0.95, f"the reference does not learn: {alone}")
    every = [read(folder, f"trained-{rank}") for rank in range(ranks)]
    for found in every:
        close = (
            abs(found["accuracy"] - alone["accuracy"]) < 0.01
            and abs(found["weights"] / alone["weights"] - 1) < 1e-3
        )
        require(close, f"{found} in place of {alone}")
    return max(every, key=lambda found: float(found["loop_s"]))


def go_through_a_kill(
    folder: Path, pause_s: float, rank: int, state: State | None, save: Callable[[State], None]
) -> None:
    """Adds up what the ranks say in each step, and saves it. Rank 1 kills itself once, a pause after a step was saved.

    Args:
        state: that was saved last.
    """
    import torch
    import torch.distributed as dist

    step, value = int(state["step"]) if state else 0, state["value"] if state else 0.0
    killed = folder / "killed"
    while step < SAVED_STEPS:
        step += 1
        if rank == 1 and step == LOST_BEFORE_STEP and not killed.exists():
            time.sleep(pause_s)
            killed.write_text(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        term = torch.tensor([float(step * (rank + 1))])
        dist.all_reduce(term)
        value = 2 * value + term.item()
        if rank == 0 and killed.exists() and not (folder / "next").exists():
            write(folder, "next", {"step": step, "time": time.time()})
        save({"step": step, "value": value})
    write(folder, f"value-{rank}", {"value": value})


def check_kill(folder: Path, ranks: int) -> tuple[float, float]:
    """Seconds from the kill to the next step, and how many saved steps were repeated."""
    expected = 0.0
    for step in range(1, SAVED_STEPS + 1):
        expected = 2 * expected + step * ranks * (ranks + 1) / 2
    for rank in range(ranks):
        value = read(folder, f"value-{rank}")["value"]
        require(value == expected, f"rank {rank} ends with {value} in place of {expected}")
    following = read(folder, "next")
    return following["time"] - float((folder / "killed").read_text()), LOST_BEFORE_STEP - following["step"]


def large_state(number: int) -> dict[str, Any]:
    """What a checkpoint is of."""
    import torch

    return {"number": number, "values": torch.full((CHECKPOINT_BYTES // 4,), float(number))}


def check_state(state: dict[str, Any]) -> None:
    """It is the last one."""
    last = CHECKPOINTS - 1
    require(bool((state["values"] == last).all()), f"not the values of checkpoint {last}")


def rows_to_share() -> np.ndarray:
    return np.arange(SHARD_ROWS * SHARD_COLUMNS, dtype=np.float32).reshape(SHARD_ROWS, SHARD_COLUMNS) % 1021


def check_rows(rows: int, total: float, array: np.ndarray) -> None:
    """An epoch has seen all of them once."""
    expected = float(array.sum(dtype=np.float64))
    require(rows == len(array), f"{rows} rows in place of {len(array)}")
    require(abs(total - expected) < 1, f"a sum of {total} in place of {expected}")


def write(folder: Path, name: str, found: dict[str, Any]) -> None:
    """Appears at once as a whole."""
    draft = folder / f"{name}.{os.getpid()}"
    draft.write_text(json.dumps(found))
    draft.rename(folder / name)


def read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found
