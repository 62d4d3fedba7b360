"""Lightning trains over the workers as it does alone."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
if importlib.util.find_spec("lightning") is None:
    pytest.skip("needs lightning", allow_module_level=True)

import runtime
from runtime import train
from runtime.train.torch import TorchTrainer
from tests.runtime.train.torch import digits

EPOCHS = 2
PRELOADED = {"preload": ["torch", "lightning.pytorch"]}
"""Its import takes seconds of CPU: once, for all workers."""


def module() -> Any:
    """Digits as a LightningModule."""
    import lightning.pytorch as pl
    import torch

    class Digits(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = digits.model()

        def training_step(self, batch: Any, index: int) -> Any:
            x, y = batch
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    return Digits()


def loader(batch_size: int, ranks: int = 1, rank: int = 0) -> Any:
    """Every rank has a part of the same batches: without Lightning's own sampler, which shuffles."""
    import torch

    x, y, _, _ = digits.data()
    rows = torch.utils.data.TensorDataset(x[:1408], y[:1408])  # 22 batches of 64, without a remainder
    sampler = torch.utils.data.DistributedSampler(rows, ranks, rank, shuffle=False)
    return torch.utils.data.DataLoader(rows, batch_size=batch_size, sampler=sampler)


def trained(**options: Any) -> Any:
    """A Lightning trainer that is quiet and writes nothing of its own."""
    import lightning.pytorch as pl

    return pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **options,
    )


@runtime.remote(runtime_env=PRELOADED)
def alone() -> Any:
    """The weights and the loss of a training in one process."""
    model, trainer = module(), trained(devices=1)
    trainer.fit(model, loader(64))
    return model.state_dict(), trainer.callback_metrics["loss"].item()


def over_workers(config: dict[str, Any]) -> None:
    from runtime.train.lightning import (
        RayDDPStrategy,
        RayDeepSpeedStrategy,
        RayLightningEnvironment,
        RayTrainReportCallback,
        prepare_trainer,
    )

    errors = []
    for wrong in (RayDeepSpeedStrategy, lambda: prepare_trainer(trained())):
        try:
            wrong()
        except (ImportError, RuntimeError) as error:
            errors.append(str(error))
    assert "pip install 'deepspeed>=0.16'" in errors[0], errors
    assert "Invalid strategy class: SingleDeviceStrategy" in errors[1], errors

    trainer = trained(
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        devices="auto",
    )
    checkpoint, path = train.get_checkpoint(), None
    if checkpoint is not None:
        path = pathlib.Path(checkpoint.to_directory(), RayTrainReportCallback.CHECKPOINT_NAME)
    prepare_trainer(trainer).fit(
        module(), loader(32, 2, train.get_context().get_world_rank()), ckpt_path=path
    )


def test_two_workers_end_with_the_weights_of_one(session: object, tmp_path: pathlib.Path) -> None:
    import torch

    weights, loss = runtime.get(alone.remote())
    result = TorchTrainer(
        over_workers,
        train_loop_config={},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path), worker_runtime_env=PRELOADED),
    ).fit()
    assert (result.metrics["epoch"], result.metrics["step"]) == (EPOCHS - 1, EPOCHS * 22)
    assert result.metrics["loss"] == pytest.approx(loss, rel=1e-4)
    with result.checkpoint.as_directory() as folder:
        saved = torch.load(pathlib.Path(folder, "checkpoint.ckpt"), weights_only=False)["state_dict"]
    for name, value in weights.items():
        torch.testing.assert_close(saved[name], value, rtol=1e-3, atol=1e-5)
