"""Ranks form their group again after a failure, whatever they waited for."""

from __future__ import annotations

import os
import pathlib
import signal
from typing import Any

import pytest

pytest.importorskip("torch")

from runtime import train
from runtime.train.torch import TorchConfig, TorchTrainer

pytestmark = pytest.mark.usefixtures("session")


def waits_for_a_living_rank(config: dict[str, Any]) -> list[Any]:
    """The first time rank 2 is killed, and the others wait for each other, of which the kernel tells them nothing."""
    import torch
    import torch.distributed as distributed

    rank, folder = train.get_context().get_world_rank(), pathlib.Path(config["folder"])
    ones = torch.ones(1)
    distributed.all_reduce(ones)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
    model(torch.full((1, 2), rank + 1.0)).sum().backward()
    (folder / f"process-{rank}-{os.getpid()}").touch()
    if not (folder / "killed").exists():
        distributed.barrier()
        if rank == 2:
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        distributed.recv(torch.ones(1), src=1 - rank)
    return [float(ones), model.module.weight.grad.flatten().tolist()]


def test_ranks_that_wait_for_living_ones_are_replaced(tmp_path: pathlib.Path) -> None:
    result = TorchTrainer(
        waits_for_a_living_rank,
        train_loop_config={"folder": str(tmp_path)},
        torch_config=TorchConfig(timeout_s=100),
        scaling_config=train.ScalingConfig(num_workers=3),
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "runs"), failure_config=train.FailureConfig(max_failures=1)
        ),
    ).fit()
    assert result.return_value == [3.0, [2.0, 2.0]]
    assert len(list(tmp_path.glob("process-2-*"))) == 2


def fails(config: dict[str, Any]) -> None:
    import torch
    import torch.distributed as distributed

    if train.get_context().get_world_rank() == 1:
        raise ValueError("the second rank does not go on")
    distributed.all_reduce(torch.ones(1))


def test_the_error_of_a_rank_is_told_and_not_only_what_it_did_to_the_others(tmp_path: pathlib.Path) -> None:
    trainer = TorchTrainer(
        fails,
        train_loop_config={},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path)),
    )
    with pytest.raises(train.WorkerGroupError, match="Rank 1: ValueError: the second rank does not go on"):
        trainer.fit()


def test_a_config_says_what_it_takes() -> None:
    assert TorchConfig(timeout_s=30).to_dict() == {"backend": None, "init_method": "env", "timeout_s": 30}
    with pytest.raises(ValueError, match="init_method must be one of env, tcp, not 'file'"):
        TorchConfig(init_method="file")
    with pytest.raises(ValueError, match="timeout_s must be positive"):
        TorchConfig(timeout_s=0)
