"""Libraries that loggers write to."""

from __future__ import annotations

import importlib.util


def check_installed(module: str, logger: str, package: str) -> None:
    """Raises ImportError, with what to install, if a logger's library is missing.

    Args:
        module: Of the library.
        logger: The name of the class.
        package: Its name for pip.
    """
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{logger} needs {package}, which is not installed here: pip install {package}")
