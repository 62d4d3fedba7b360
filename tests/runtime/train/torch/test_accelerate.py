"""Accelerate finds the workers' group and devices, without a launcher of its own."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("sklearn")

from runtime import train
from runtime.train.torch import TorchTrainer
from tests.runtime.train.torch import digits


def with_accelerate(config: dict[str, Any]) -> dict[str, Any]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(digits.model())
    got = digits.loop(model, accelerator.process_index, accelerator.num_processes)
    return {"processes": accelerator.num_processes, "device": str(accelerator.device), **got}


def test_a_loop_with_accelerate_computes_what_torch_alone_does(
    session: object, tmp_path: pathlib.Path
) -> None:
    alone = digits.loop(digits.model(), 0, 1)
    result = TorchTrainer(
        with_accelerate,
        train_loop_config={},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path)),
    ).fit()
    found = result.return_value
    assert (found["processes"], found["device"]) == (2, "cpu")
    assert found["weights"] == pytest.approx(alone["weights"], rel=1e-4)
