"""The code of docs/writing-a-controller.md, as a module."""

from __future__ import annotations

import pathlib
import re
import sys
import types
from typing import Any

import cloudpickle

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "writing-a-controller.md"
NAME = "the_example_controller"


def load() -> Any:
    """Runs the blocks of the page once, in order."""
    if NAME not in sys.modules:
        module = types.ModuleType(NAME)
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        sys.modules[NAME] = module
        cloudpickle.register_pickle_by_value(module)  # workers cannot import it
        exec(compile("\n\n".join(blocks), str(PAGE), "exec"), vars(module))
    return sys.modules[NAME]
