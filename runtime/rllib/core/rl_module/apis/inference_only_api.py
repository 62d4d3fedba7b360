"""Modules that need fewer networks to act than to learn."""

from __future__ import annotations

import abc


class InferenceOnlyAPI(abc.ABC):
    """With `inference_only=True` such a module has no networks that only learning needs.

    Environment runners have modules like this, and get states without those networks' weights.
    """

    @abc.abstractmethod
    def get_non_inference_attributes(self) -> list[str]:
        """Names of attributes that only learning needs, such as "vf" or "encoder.critic_encoder"."""
