"""Callbacks from a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig
from runtime.rllib.algorithms.callbacks import DefaultCallbacks
from runtime.rllib.callbacks.callbacks import RLlibCallback
from runtime.rllib.callbacks.utils import EVENTS, CallbackCaller, make_callback

REQUIRED = """algorithm result evaluation_metrics env_runner_group env_runner_indices offline_eval_runner_group
offline_eval_runner_indices is_evaluation env_runner env env_context episode samples env_index"""
"""All arguments that some event requires."""


class Recording(RLlibCallback):
    seen: list[str] = []

    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        self.seen.append(f"class {episode}")


class Other(Recording):
    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        self.seen.append(f"other {episode}")


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    Recording.seen.clear()


def test_classes_come_before_functions_in_the_given_order() -> None:
    def function(*, episode: Any, **kwargs: Any) -> None:
        Recording.seen.append(f"function {episode}")

    config = AlgorithmConfig().callbacks([Recording, Other], on_episode_end=[function, function])
    caller = CallbackCaller(config)
    caller.call("on_episode_end", episode=3, env_index=0)
    assert Recording.seen == ["class 3", "other 3", "function 3", "function 3"]


def test_only_overridden_events_are_used() -> None:
    caller = CallbackCaller(AlgorithmConfig().callbacks(Recording, on_sample_end=lambda **kwargs: None))
    assert {event for event in EVENTS if caller.uses(event)} == {"on_episode_end", "on_sample_end"}


def test_the_default_does_nothing_at_any_event() -> None:
    caller = CallbackCaller(AlgorithmConfig())
    assert not any(map(caller.uses, EVENTS))
    for event in EVENTS:
        required: dict[str, Any] = dict.fromkeys(REQUIRED.split())
        assert getattr(DefaultCallbacks(), event)(**required) is None


def test_none_as_class_means_the_default() -> None:
    config = AlgorithmConfig().callbacks(Recording).callbacks(None)
    assert config.callbacks_class is RLlibCallback


@pytest.mark.parametrize("given", [3, [3]])
def test_what_cannot_be_called_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="callbacks_class"):
        AlgorithmConfig().callbacks(given)
    with pytest.raises(TypeError, match="on_train_result"):
        AlgorithmConfig().callbacks(on_train_result=given)


def test_make_callback_takes_one_or_several() -> None:
    one = Recording()
    make_callback("on_episode_end", one, kwargs={"episode": 1})
    make_callback("on_episode_end", [one], lambda **kwargs: Recording.seen.append("f"), kwargs={"episode": 2})
    assert Recording.seen == ["class 1", "class 2", "f"]
