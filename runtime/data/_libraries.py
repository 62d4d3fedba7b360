"""Libraries that data sets need for some things only: imported on first use, with an error that says what to get."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

_PACKAGES = {
    "PIL": "Pillow",
    "fsspec": "'clusterctl[data]'",
    "lance": "pylance",
    "numpy": "'clusterctl[data]'",
    "pyarrow": "'clusterctl[data]'",
    "pyiceberg": "'pyiceberg[sql-sqlite]'",
}
"""What to install for a module, where the package has another name."""


def load(module: str, purpose: str) -> Any:
    """The module, imported.

    Args:
        module: For example "PIL.Image".
        purpose: What needs it, as the beginning of a sentence, for example "read_images".

    Raises:
        ImportError: The library is not installed. It names the purpose and the package. Errors of the import of an
            installed library come as they are.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise missing(module, purpose) from None


def require(modules: tuple[str, ...], purpose: str) -> None:
    """Raises ImportError as `load` does, but imports nothing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise missing(module, purpose)


def missing(module: str, purpose: str, package: str | None = None) -> ImportError:
    """The error for a library that `purpose` needs and that is not installed."""
    library = module.partition(".")[0]
    package = package or _PACKAGES.get(library, library)
    named = library if library != "PIL" else "Pillow"
    return ImportError(f"{purpose} needs {named}, which is not installed here: pip install {package}")
