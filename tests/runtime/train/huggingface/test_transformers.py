"""A tiny language model with random weights, fine-tuned over the workers as by the library alone."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from runtime import data, train
from runtime.train.torch import TorchTrainer

ROWS, LENGTH, BATCH = 32, 16, 8
TEXT = "Fine-tuning goes over the rows of a text, of which each byte is a token. " * 8


def tokens() -> list[dict[str, Any]]:
    """Rows of bytes, as inputs and labels."""
    flat = np.frombuffer(TEXT.encode()[: ROWS * LENGTH], dtype=np.uint8).astype(np.int64)
    return [{"input_ids": row, "labels": row} for row in flat.reshape(ROWS, LENGTH)]


def trainer(folder: str, rows: Any, batch: int, **options: Any) -> Any:
    """A trainer of a GPT-2 of one layer, without dropout and without logs of its own."""
    import torch

    torch.manual_seed(0)
    shape = transformers.GPT2Config(
        vocab_size=128,
        n_layer=1,
        n_head=2,
        n_embd=16,
        n_positions=LENGTH,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=batch,
        learning_rate=1e-2,
        logging_strategy="epoch",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=7,
        **options,
    )
    return transformers.Trainer(model=transformers.GPT2LMHeadModel(shape), args=arguments, train_dataset=rows)


def over_workers(config: dict[str, Any]) -> int:
    from runtime.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer

    tuned = trainer(config["folder"], tokens(), BATCH // 2, num_train_epochs=2, save_strategy="epoch")
    tuned.add_callback(RayTrainReportCallback())
    prepare_trainer(tuned).train()

    shard = train.get_dataset_shard("rows")
    streamed = trainer(
        config["folder"], shard.iter_torch_batches(batch_size=BATCH // 2), 1, max_steps=3, save_strategy="no"
    )
    steps = prepare_trainer(streamed).train().global_step
    return steps


def test_two_workers_end_with_the_weights_of_one(session: object, tmp_path: pathlib.Path) -> None:
    import torch

    alone = trainer(str(tmp_path / "alone"), tokens(), BATCH, num_train_epochs=2, save_strategy="no")
    alone.train()

    result = TorchTrainer(
        over_workers,
        train_loop_config={"folder": str(tmp_path / "together")},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path)),
        datasets={"rows": data.from_items(tokens())},
    ).fit()
    assert result.return_value == 3
    losses = [log["loss"] for log in alone.state.log_history if "loss" in log]
    with result.checkpoint.as_directory() as folder:
        assert (pathlib.Path(folder, "checkpoint", "trainer_state.json")).exists()
        assert sorted(each.name for each in pathlib.Path(folder, "checkpoint").glob("rng_state*")) == [
            "rng_state_0.pth",
            "rng_state_1.pth",
        ]
        saved = transformers.AutoModelForCausalLM.from_pretrained(pathlib.Path(folder, "checkpoint"))
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(saved.state_dict()[name], value, rtol=1e-3, atol=1e-4)
    reported = [row["loss"] for row in result.metrics_dataframe.to_dict("records") if "epoch" in row]
    assert reported[: len(losses)] == pytest.approx(losses, rel=1e-3)
