"""PyTorch Lightning, under the name by which the program knows it.

The packages `lightning` and `pytorch_lightning` have classes of their own each, which do not go together.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _load() -> Any:
    imported = [name for name in _NAMES if name in sys.modules]
    for name in imported or _NAMES:
        if name in sys.modules or importlib.util.find_spec(name.partition(".")[0]) is not None:
            return importlib.import_module(name)
    raise ImportError(
        "runtime.train.lightning needs PyTorch Lightning, which is not installed here: pip install lightning"
    )


pl = _load()
environments = importlib.import_module(f"{pl.__name__}.plugins.environments")
