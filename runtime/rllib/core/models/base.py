"""What networks of all frameworks share, and the keys under which encoders give their results."""

from __future__ import annotations

import abc
from typing import Any

ENCODER_OUT = "encoder_out"
ACTOR = "actor"
CRITIC = "critic"


class Model(abc.ABC):
    """A network that a `ModelConfig` builds."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def get_initial_state(self) -> Any:
        """The state before the first step of an episode, without a batch dimension; {} without state."""
        return {}

    @abc.abstractmethod
    def _forward(self, inputs: Any, **kwargs: Any) -> Any:
        """The network's result."""

    @abc.abstractmethod
    def get_num_parameters(self) -> tuple[int, int]:
        """Numbers of parameters: trainable, and not trainable."""


class Encoder(Model):
    """A network from a batch to features: {"encoder_out": features}, and "state_out" if it is recurrent."""


class ActorCriticEncoder(Encoder):
    """An encoder whose "encoder_out" is {"actor": features, "critic": features}."""
