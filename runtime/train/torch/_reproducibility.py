"""Training that gives the same result each time, as far as torch can."""

from __future__ import annotations

import importlib.util
import os
import random

import torch


def enable_reproducibility(seed: int = 0) -> None:
    """Seeds torch, Python's `random` and NumPy, and chooses deterministic algorithms.

    Processes of data loaders follow from the seed of torch. See
    https://pytorch.org/docs/stable/notes/randomness.html for what stays random.

    Args:
        seed: the same on every worker, or different by rank.
    """
    random.seed(seed)
    torch.manual_seed(seed)
    if importlib.util.find_spec("numpy") is not None:
        import numpy

        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what cuBLAS needs for the same
