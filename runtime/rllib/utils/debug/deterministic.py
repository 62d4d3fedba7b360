"""Seeds of this process."""

from __future__ import annotations

import random

import numpy as np


def update_global_seed_if_necessary(framework: str | None = None, seed: int | None = None) -> None:
    """Seeds the generators of `random`, NumPy and, for the framework "torch", torch; nothing without a seed."""
    if seed is None:
        return
    random.seed(seed)
    np.random.seed(seed)
    if framework == "torch":
        from ..torch_utils import set_torch_seed

        set_torch_seed(seed)
