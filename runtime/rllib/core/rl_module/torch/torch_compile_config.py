"""Settings of torch.compile."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any


@dataclasses.dataclass
class TorchCompileConfig:
    """How `TorchRLModule.compile` compiles.

    Attributes:
        torch_dynamo_backend: backend of torch.compile.
        torch_dynamo_mode: mode of torch.compile.
        kwargs: further arguments of torch.compile.
    """

    torch_dynamo_backend: str = "aot_eager" if sys.platform == "darwin" else "inductor"
    torch_dynamo_mode: str | None = None
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
