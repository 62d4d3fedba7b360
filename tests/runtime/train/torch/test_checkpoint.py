"""Checkpoints of models: state or the whole, with the preprocessor of their inputs."""

from __future__ import annotations

import pathlib

import pytest

torch = pytest.importorskip("torch")

from runtime.data.preprocessors import StandardScaler
from runtime.train.torch import TorchCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore:TorchCheckpoint is deprecated:DeprecationWarning")


def test_a_state_comes_back_without_the_prefix_of_ddp() -> None:
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    checkpoint = TorchCheckpoint.from_state_dict(state, preprocessor=StandardScaler(["x"]))
    assert checkpoint.get_model(other) is other
    assert torch.equal(other.weight, model.weight)
    assert repr(checkpoint.get_preprocessor()) == repr(StandardScaler(["x"]))
    with pytest.raises(ValueError, match="needs a model that takes it"):
        checkpoint.get_model()


def test_a_whole_model() -> None:
    model = torch.nn.Linear(2, 1)
    checkpoint = TorchCheckpoint.from_model(model)
    assert torch.equal(checkpoint.get_model().weight, model.weight)
    assert checkpoint.get_preprocessor() is None


def test_another_checkpoint_is_not_a_model_s(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match=r"has no model\.pt"):
        TorchCheckpoint.from_directory(str(tmp_path)).get_model()


def test_it_says_that_it_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"Checkpoint\.from_directory"):
        TorchCheckpoint.from_model(torch.nn.Linear(1, 1))
