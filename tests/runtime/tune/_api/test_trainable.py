"""What can be tuned, and classes outside of an experiment."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pytest

from runtime import tune
from runtime.tune._api.trainable import Equipped, found_trainable, name_of


class Counter(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.number = config.get("from", 0)

    def step(self) -> dict[str, Any]:
        self.number += 1
        return {"number": self.number}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        pathlib.Path(checkpoint_dir, "number").write_text(str(self.number))

    def load_checkpoint(self, checkpoint: str) -> None:
        self.number = int(pathlib.Path(checkpoint, "number").read_text())


def function(config: dict[str, Any], factor: int = 1) -> None:
    pass


def test_functions_and_classes_are_found() -> None:
    assert found_trainable(function).trainable is function
    assert found_trainable(Counter).trainable is Counter
    equipped = tune.with_resources(function, {"CPU": 2})
    assert found_trainable(equipped) is equipped
    assert equipped.resources.bundles == [{"CPU": 2.0}]
    tune.register_trainable("mine", function)
    assert found_trainable("mine").__name__ == "mine"
    assert name_of(functools.partial(function, factor=2)) == "function"
    assert name_of(lambda config: None) == "lambda"


def test_what_cannot_be_tuned_says_why() -> None:
    class Trainer:
        def fit(self) -> None: ...

    with pytest.raises(ValueError, match=r"No trainable is registered as 'other'; registered are: "):
        found_trainable("other")
    with pytest.raises(TypeError, match=r"must be a subclass of tune\.Trainable"):
        found_trainable(dict)
    with pytest.raises(TypeError, match="Call the trainer's fit"):
        found_trainable(Trainer())
    with pytest.raises(TypeError, match="not 3"):
        found_trainable(3)
    with pytest.raises(TypeError, match=r"cannot be called with its configuration"):
        found_trainable(lambda: None)
    with pytest.raises(TypeError, match=r"its configuration, other=\.\.\."):
        found_trainable(Equipped(function, None, {"other": None}))
    with pytest.raises(TypeError, match="needs a trainable"):
        tune.Tuner()


def test_a_class_works_by_itself(tmp_path: pathlib.Path) -> None:
    one = Counter({"from": 5})
    assert one.train() == {"training_iteration": 1, "done": False, "number": 6}
    assert one.save(str(tmp_path / "c")).checkpoint.path == str(tmp_path / "c")
    other = Counter()
    other.restore(str(tmp_path / "c"))
    assert other.train()["number"] == 7
    assert (one.iteration, one.trial_id, one.get_config()) == (1, "default", {"from": 5})
    one.stop()
    with pytest.raises(NotImplementedError, match=r"must define step\(\)"):
        tune.Trainable().train()
