"""The source of a deployment's code: of its module, and of the modules of the same program that this one uses."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OURS = frozenset({"runtime", "ray"})


def sources(module: ModuleType) -> dict[str, bytes]:
    """Contents of files by the names of their modules: of `module` unless it is the program itself, and of those in
    the same folder or package that its globals lead to. Those of an installed package are left out."""
    file = getattr(module, "__file__", None)
    if not file or module.__name__.partition(".")[0] in _OURS:
        return {}
    path = Path(file).absolute()
    depth = 0 if module.__name__ == "__main__" else module.__name__.count(".")
    folder = path.parents[depth + (path.name == "__init__.py")]
    found: dict[str, bytes] = {}
    seen = {module.__name__}
    todo = [module]
    while todo:
        each = todo.pop()
        if each.__name__ != "__main__":
            text = _text(each, folder, is_first=each is module)
            if text is None:
                continue
            found[each.__name__] = text
        for value in list(vars(each).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(name, str) and name not in seen and name in sys.modules:
                seen.add(name)
                todo.append(sys.modules[name])
    return found


def _text(module: ModuleType, folder: Path, is_first: bool) -> bytes | None:
    file = getattr(module, "__file__", None)
    if not file or module.__name__.partition(".")[0] in _OURS:
        return None
    path = Path(file).absolute()
    if not path.is_relative_to(folder) or (not is_first and not _INSTALLED.isdisjoint(path.parts)):
        return None
    try:
        return path.read_bytes()
    except OSError:  # it is in an archive, or was removed
        return None
