"""Where these packages are imported from: a source tree, site-packages, or a zip in site-packages."""

from __future__ import annotations

import os

_SITES = ("site-packages", "dist-packages")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder or zip."""


def is_installed() -> bool:
    """Whether the Python of this process finds them without help."""
    return os.path.basename(ROOT) in _SITES or is_zipped()


def is_zipped() -> bool:
    """Whether they are in a zip. What they need is then beside it."""
    return os.path.basename(os.path.dirname(ROOT)) in _SITES


def index() -> str | None:
    """The file that says where modules are in the zip: {name: (offset, bytes, whether it is a package)}, marshalled."""
    return f"{ROOT}.index" if is_zipped() else None


def paths() -> list[str]:
    """What another Python needs in `sys.path` to import them, and what they need."""
    return [os.path.dirname(ROOT), ROOT] if is_zipped() else [ROOT]
