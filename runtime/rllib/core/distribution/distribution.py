"""What every distribution over actions can do."""

from __future__ import annotations

import abc
from typing import Any


class Distribution(abc.ABC):
    """A batch of distributions, made from a module's outputs by `from_logits`."""

    @abc.abstractmethod
    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **kwargs: Any) -> Any:
        """Values of shape [*sample_shape, *batch, *event], without a gradient."""

    @abc.abstractmethod
    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **kwargs: Any) -> Any:
        """Values like those of `sample`, through which gradients flow to the parameters."""

    @abc.abstractmethod
    def logp(self, value: Any, **kwargs: Any) -> Any:
        """Log-probabilities (or log-densities) of values, of shape [*batch]."""

    @abc.abstractmethod
    def kl(self, other: Distribution, **kwargs: Any) -> Any:
        """Kullback-Leibler divergences KL(self, other), of shape [*batch]."""

    @abc.abstractmethod
    def entropy(self, **kwargs: Any) -> Any:
        """Entropies in nats, of shape [*batch]."""

    @staticmethod
    @abc.abstractmethod
    def required_input_dim(space: Any, **kwargs: Any) -> int:
        """How many outputs of a module `from_logits` needs for an action space."""

    @classmethod
    @abc.abstractmethod
    def from_logits(cls, logits: Any, **kwargs: Any) -> Distribution:
        """A distribution from a module's outputs, of shape [*batch, required_input_dim]."""

    @abc.abstractmethod
    def to_deterministic(self) -> Distribution:
        """The distribution that always gives the best single action of this one: its mode, or its mean."""

    @classmethod
    def get_partial_dist_cls(cls, **partial_kwargs: Any) -> type[Distribution]:
        """A subclass whose `from_logits` and `required_input_dim` get these arguments.

        An argument that is passed to them again overrides the bound one.
        """
        parent: Any = cls

        class DistributionPartial(parent):
            """A distribution with bound arguments."""

            @staticmethod
            def required_input_dim(space: Any, **kwargs: Any) -> int:
                return parent.required_input_dim(space, **{**partial_kwargs, **kwargs})

            @classmethod
            def from_logits(cls, logits: Any, **kwargs: Any) -> Distribution:
                return parent.from_logits(logits, **{**partial_kwargs, **kwargs})

        DistributionPartial.__name__ = f"{parent.__name__}Partial"
        return DistributionPartial
