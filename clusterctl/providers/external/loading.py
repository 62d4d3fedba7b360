"""Loads a provider that is not part of this package, by the path of its class, and brings its module to the head."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from clusterctl.errors import UsageProblem
from clusterctl.spec.node_dir import NODE_FOLDER

from ..protocol import MEMBERS, Make
from .config import ExternalProvider

_FOLDER = "provider"
"""In the folder of the head's node: the provider's module, and packages that setup commands put beside it."""
_SETTING = "provider_folder"
"""Setting of the head's provider: a folder that modules are imported from."""
_ADVICE = "Install its package, or name its folder in PYTHONPATH. See docs/adding-a-provider.md."


def load(config: ExternalProvider, settings: Mapping[str, str]) -> Make:
    """The class of a provider.

    Raises:
        UsageProblem: the class cannot be imported, or is not a provider.
    """
    module_name, _, name = config.class_path.partition(":")
    if folder := settings.get(_SETTING):
        folder = os.path.expanduser(folder)
        sys.path.extend([folder] * (folder not in sys.path))  # last: it hides nothing
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the module does when it is imported
        raise UsageProblem(
            f"the provider's module '{module_name}' cannot be imported: {type(error).__name__}: {error}",
            _ADVICE,
        ) from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise UsageProblem(f"the module '{module_name}' has no class '{name}'", "Correct provider.class.")
    missing = sorted(member for member in MEMBERS if not hasattr(found, member))
    if missing:
        raise UsageProblem(
            f"{config.class_path} is not a provider: it has no {', '.join(missing)}",
            "docs/adding-a-provider.md says what a provider must have.",
        )
    return found


def settings_for_head() -> dict[str, str]:
    """What `load` needs on the head besides the spec."""
    return {_SETTING: f"~/{NODE_FOLDER}/{_FOLDER}"}


def files_for_head(config: ExternalProvider) -> tuple[tuple[str, str], ...]:
    """The module of a loaded provider with its package: (name in its node's folder, file here)."""
    return tuple(
        (f"{_FOLDER}/{name}", str(file)) for name, file in _modules(config.class_path.partition(":")[0])
    )


def _modules(module: str) -> Iterator[tuple[str, Path]]:
    """(name on sys.path, file) of the outermost package with an `__init__.py` that the module is in, or of the module
    itself. Hidden files, such as `.env` and `.git`, stay here."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        file = sys.modules[".".join(parts[:length])].__file__
        if file is None:  # a namespace package, which others may be in
            continue
        path = Path(file)
        if path.name != "__init__.py":
            yield "/".join((*parts[: length - 1], path.name)), path
            return
        for inner in sorted(path.parent.rglob("*")):
            name = inner.relative_to(path.parent)
            if inner.is_file() and not any(
                part.startswith(".") or part == "__pycache__" for part in name.parts
            ):
                yield f"{'/'.join(parts[:length])}/{name}", inner
        return
