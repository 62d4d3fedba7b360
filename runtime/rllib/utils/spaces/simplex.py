"""Vectors of numbers from 0 to 1 whose sum is 1."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Simplex(gym.Space):
    """Arrays whose last dimension holds numbers from 0 to 1 with the sum 1, such as shares."""

    def __init__(self, shape: tuple[int, ...], concentration: Any = None, dtype: Any = np.float32) -> None:
        """Samples are Dirichlet distributed.

        Args:
            shape: of a value.
            concentration: of the distribution, [shape[-1]]; None means 1 for each, the uniform distribution.
            dtype: of a value.

        Raises:
            ValueError: `concentration` has another length.
        """
        super().__init__(shape, dtype)
        self.dim = shape[-1]
        self.concentration = np.ones(self.dim) if concentration is None else np.asarray(concentration)
        if self.concentration.shape != (self.dim,):
            raise ValueError(f"concentration must have shape ({self.dim},), not {self.concentration.shape}")

    def sample(self, *_: Any, **__: Any) -> np.ndarray:
        """A random value."""
        return self.np_random.dirichlet(self.concentration, size=self.shape[:-1]).astype(self.dtype)

    def contains(self, x: Any) -> bool:
        """Whether x is a value of the space."""
        return bool(np.shape(x) == self.shape and np.all(x >= 0) and np.allclose(np.sum(x, -1), 1.0))

    def to_jsonable(self, sample_n: Any) -> list[Any]:
        """Samples as lists of numbers."""
        return np.asarray(sample_n).tolist()

    def from_jsonable(self, sample_n: list[Any]) -> list[Any]:
        """Samples from lists of numbers."""
        return [np.asarray(sample, dtype=self.dtype) for sample in sample_n]

    def __repr__(self) -> str:
        return f"Simplex({self.shape}, {self.concentration})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Simplex)
            and self.shape == other.shape
            and bool(np.allclose(self.concentration, other.concentration))
        )
