"""Where these packages are: in a source tree, or installed in site-packages."""

from __future__ import annotations

import os
import site
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that holds `runtime`. Another Python that has it in `sys.path` can import these packages."""

PIP_WHEEL = os.path.join(sys.prefix, "pip.whl")
"""pip, where the launcher has brought these packages to a machine that has none; elsewhere there is no such file."""


def is_installed() -> bool:
    """Whether the Python of this process finds them by itself, in one of its own folders of packages."""
    own = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return os.path.realpath(ROOT) in map(os.path.realpath, own)


def has_pip_wheel() -> bool:
    """Whether `PIP_WHEEL` is there."""
    return os.path.isfile(PIP_WHEEL)
