"""Where these packages are imported from: a source tree, site-packages, or a zip, most often in site-packages."""

from __future__ import annotations

import os
import zipimport

_SITES = ("site-packages", "dist-packages")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder or zip."""


def is_installed() -> bool:
    """Whether the Python of this process finds them without help."""
    return os.path.basename(os.path.dirname(ROOT) if is_zipped() else ROOT) in _SITES


def is_zipped() -> bool:
    """Whether they are in a zip. What they need is then beside it."""
    return __spec__ is not None and isinstance(__spec__.loader, zipimport.zipimporter)


def index() -> str | None:
    """The file that says where modules are in the zip: {name: (offset, bytes, whether it is a package)}, marshalled.
    None when there is none."""
    path = f"{ROOT}.index"
    return path if is_zipped() and os.path.exists(path) else None


def paths() -> list[str]:
    """What another Python needs in `sys.path` to import them, and what they need."""
    return [os.path.dirname(ROOT), ROOT] if is_zipped() else [ROOT]
