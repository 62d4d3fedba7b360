"""Workers have the variables that TensorFlow reads. TensorFlow itself is not needed for this."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest

from runtime import train
from runtime.train.tensorflow import TensorflowTrainer


def write_down(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    found = [os.environ["TF_CONFIG"], os.environ["TF_USE_LEGACY_KERAS"]]
    pathlib.Path(config["folder"], f"{rank}.json").write_text(json.dumps(found))


@pytest.mark.usefixtures("session")
def test_every_rank_finds_all_addresses(tmp_path: pathlib.Path) -> None:
    TensorflowTrainer(
        write_down,
        train_loop_config={"folder": str(tmp_path)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [keras for _, keras in found] == ["1", "1"]
    clusters = [json.loads(text) for text, _ in found]
    assert [each["task"] for each in clusters] == [{"type": "worker", "index": rank} for rank in range(2)]
    workers = clusters[0]["cluster"]["worker"]
    assert clusters[1]["cluster"]["worker"] == workers
    assert len({address.rpartition(":")[2] for address in workers}) == 2
