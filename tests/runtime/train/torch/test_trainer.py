"""A TorchTrainer computes what torch alone does, and gives its function what torchrun gives to a program."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from runtime import train
from runtime.train.torch import (
    TorchConfig,
    TorchTrainer,
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
)
from tests.runtime.train.torch import digits

pytestmark = pytest.mark.usefixtures("session")


def fit(function: Any, folder: pathlib.Path, workers: int = 2, **config: Any) -> Any:
    return TorchTrainer(
        function,
        train_loop_config={"folder": str(folder), **config},
        torch_config=TorchConfig(timeout_s=100),
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(storage_path=str(folder)),
    ).fit()


def strategies(config: dict[str, Any]) -> list[dict[str, Any]]:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    rows = []
    for strategy in config["strategies"]:
        model = prepare_model(digits.model(), parallel_strategy=strategy)
        rows.append({"type": type(model).__name__, **digits.loop(model, rank, world)})
    return rows


def test_models_are_trained_as_by_torch_alone(tmp_path: pathlib.Path) -> None:
    alone = digits.loop(digits.model(), 0, 1)
    assert alone["accuracy"] > 0.85
    rows = fit(strategies, tmp_path, strategies=["ddp", "fsdp2"]).return_value
    assert [row["type"] for row in rows] == ["DistributedDataParallel", "FSDPSequential"]
    for row in rows:
        assert row["accuracy"] == pytest.approx(alone["accuracy"], abs=0.01)
        assert row["weights"] == pytest.approx(alone["weights"], rel=1e-4)


def surroundings(config: dict[str, Any]) -> list[Any]:
    import torch
    import torch.distributed as distributed
    from torch.utils.data import DataLoader

    enable_reproducibility(3)
    loader: Any = prepare_data_loader(DataLoader(list(range(8)), batch_size=2, shuffle=True))
    loader.sampler.set_epoch(1)
    rows = [row for batch in loader for row in batch.tolist()]
    errors = []
    for wrong in ({"parallel_strategy": "tp"}, {"parallel_strategy": "fsdp"}):
        try:
            prepare_model(torch.nn.Linear(1, 1), **wrong)
        except (ValueError, RuntimeError) as error:
            errors.append(str(error))
    seen: dict[str, Any] = {
        "variables": {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK")},
        "group": [distributed.get_rank(), distributed.get_world_size(), distributed.get_backend()],
        "devices": [str(get_device()), *map(str, get_devices())],
        "threads": torch.get_num_threads(),
        "rows": rows,
        "errors": errors,
        "random": torch.rand(1).item(),
    }
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, seen)
    return everyone


def test_the_function_finds_what_torchrun_s_programs_find(tmp_path: pathlib.Path) -> None:
    seen = fit(surroundings, tmp_path).return_value
    for rank, each in enumerate(seen):
        assert each["variables"] == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "NODE_RANK": "0",
        }
        assert each["group"] == [rank, 2, "gloo"]
        assert each["devices"] == ["cpu", "cpu"]
        assert each["threads"] == 1
        assert "parallel_strategy must be one of ddp, fsdp, fsdp2 or None, not 'tp'" in each["errors"][0]
        assert "FullyShardedDataParallel needs GPUs" in each["errors"][1]
    assert sorted(seen[0]["rows"] + seen[1]["rows"]) == list(range(8))
    assert seen[0]["random"] == seen[1]["random"]


def test_helpers_of_a_training_function_say_where_they_belong() -> None:
    with pytest.raises(RuntimeError, match="in a training function"):
        get_device()


def test_withdrawn_helpers_say_what_to_use() -> None:
    from runtime.train.torch import accelerate, backward, prepare_optimizer

    for call in (accelerate, lambda: backward(None), lambda: prepare_optimizer(None)):
        with pytest.raises(DeprecationWarning, match="torch"):
            call()
