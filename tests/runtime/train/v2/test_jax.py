"""Workers with JAX compute what one process does, and go on after one has died."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import tempfile
from typing import Any

import pytest

pytest.importorskip("jax")

from runtime import train
from runtime.train.v2.jax import JaxConfig, JaxTrainer

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.timeout(120)]

STEPS, ROWS = 6, 64


def table() -> Any:
    import numpy

    rng = numpy.random.default_rng(3)
    features = rng.normal(size=(ROWS, 4)).astype("float32")
    return features, features @ numpy.array([1.0, -2.0, 3.0, 0.5], "float32")


def gradient(weights: Any, features: Any, targets: Any) -> Any:
    import jax

    return jax.grad(lambda w: ((features @ w - targets) ** 2).sum())(weights)


def alone() -> list[float]:
    import numpy

    features, targets = table()
    weights = numpy.zeros(4, "float32")
    for _ in range(STEPS):
        weights -= 0.2 / ROWS * (2 * features.T @ (features @ weights - targets))
    return [float(each) for each in weights]


def together(config: dict[str, Any]) -> Any:
    """Each rank has half of the rows; gradients are summed over all devices. Rank 1 is killed once, after a step."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.multihost_utils import process_allgather

    rank, folder = train.get_context().get_world_rank(), pathlib.Path(config["folder"])
    assert (jax.process_index(), jax.process_count()) == (rank, 2)
    assert len(jax.devices()) == 2 * len(jax.local_devices())
    state: dict[str, Any] = {"step": 0, "weights": [0.0] * 4}
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as place:
            state = json.loads(pathlib.Path(place, "state.json").read_text())
    features, targets = (each[rank::2] for each in table())
    weights = jnp.array(state["weights"])
    for step in range(state["step"] + 1, STEPS + 1):
        weights -= 0.2 / ROWS * process_allgather(gradient(weights, features, targets)).sum(axis=0)
        state = {"step": step, "weights": [float(each) for each in weights]}
        if rank:
            train.report(state)
        else:
            with tempfile.TemporaryDirectory() as own:
                pathlib.Path(own, "state.json").write_text(json.dumps(state))
                train.report(state, checkpoint=train.Checkpoint.from_directory(own))
        killed = folder / "killed"
        if config["kills"] and rank and step == 3 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return state["weights"]


@pytest.mark.parametrize("kills", [False, True])
def test_two_workers_end_with_the_weights_of_one(tmp_path: pathlib.Path, kills: bool) -> None:
    result = JaxTrainer(
        together,
        train_loop_config={"folder": str(tmp_path), "kills": kills},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "runs"), failure_config=train.FailureConfig(max_failures=int(kills))
        ),
    ).fit()
    assert result.metrics["step"] == STEPS
    assert result.return_value == pytest.approx(alone(), rel=1e-4)
    assert (tmp_path / "killed").exists() == kills


def test_the_config_says_what_it_takes() -> None:
    assert JaxConfig(use_gpu=True).to_dict() == {"use_tpu": False, "use_gpu": True}
    with pytest.raises(NotImplementedError, match="use_tpu"):
        JaxConfig(use_tpu=True)
