"""Data-parallel training with JAX, with the names of `ray.train.v2.jax`. JAX is imported by the workers only."""

from __future__ import annotations

from runtime.train.v2.jax._backend import JaxConfig
from runtime.train.v2.jax.trainer import JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
