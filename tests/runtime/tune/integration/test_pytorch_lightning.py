"""Trials that train with Lightning report at its hooks."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("lightning") is None:
    pytest.skip("needs lightning", allow_module_level=True)

from runtime import tune

pytestmark = pytest.mark.usefixtures("session")


def fit(config: dict[str, Any]) -> None:
    """A line through points, for two epochs."""
    import lightning.pytorch as pl

    from runtime.tune.integration.pytorch_lightning import TuneReportCallback, TuneReportCheckpointCallback

    class Line(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return ((self.layer(batch[0]) - batch[1]) ** 2).mean()

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", ((self.layer(batch[0]) - batch[1]) ** 2).mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=config["lr"])

    torch.manual_seed(0)
    x = torch.linspace(0, 1, 16).reshape(-1, 1)
    points = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 3 * x + 1), batch_size=4)
    callbacks = (
        [TuneReportCheckpointCallback(metrics={"loss": "val_loss"}, filename="line.ckpt")]
        if config["saves"]
        else [TuneReportCallback(on="train_end")]
    )
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=callbacks, num_sanity_val_steps=1, **quiet
    )
    trainer.fit(Line(), points, points)


def test_trials_report_after_each_validation_and_at_the_end(tmp_path: pathlib.Path) -> None:
    saving, plain = tune.Tuner(
        fit,
        param_space={"lr": 0.1, "saves": tune.grid_search([True, False])},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert [saving.error, plain.error] == [None, None]
    losses = [row["loss"] for row in saving.history]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    saved = torch.load(pathlib.Path(saving.checkpoint.path, "line.ckpt"), weights_only=False)
    assert saved["epoch"] == 1
    assert [row["val_loss"] for row in plain.history] == [losses[1]]
    assert plain.checkpoint is None


def test_hooks_are_checked() -> None:
    from runtime.tune.integration.pytorch_lightning import TuneReportCallback

    with pytest.raises(ValueError, match="not 'lunch_break'"):
        TuneReportCallback(on="lunch_break")
