"""`import ray` means this engine: the same module objects under both names.

    python -m runtime.compat.ray script.py ARGS     runs a program written for Ray (also: -m MODULE, -c CODE)
    runtime.compat.ray.install()                    the same, from inside a program, before its `import ray`

`ray.X` and `runtime.X` are the same module, so `isinstance`, `except` and pickling by reference work with either name.
Workers of such a program install the alias, too, and Python processes that it starts find it. It hides an installed
Ray.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

import runtime
from runtime import exceptions
from runtime._system import location


class _AliasLoader(importlib.abc.Loader):
    """Returns the module of another name instead of loading one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just put the alias's there
        _name_loaded(self._name)


class _AliasFinder(importlib.abc.MetaPathFinder):
    """Finds `ray` and its submodules in `runtime`, else in `runtime.compat`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "ray":
            return importlib.util.spec_from_loader(fullname, _AliasLoader("runtime"))
        if not fullname.startswith("ray."):
            return None
        rest = fullname.removeprefix("ray.")
        for name in (f"runtime.{rest}", f"runtime.compat.{rest}"):
            if _exists(name):
                return importlib.util.spec_from_loader(fullname, _AliasLoader(name))
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: `ray` is the alias of `runtime` here, "
            "which has Ray's core API, Ray Data, Train, Tune, Serve and RLlib only.",
            name=fullname,
        )


def _name_loaded(package: str) -> None:
    """Gives what a package has loaded of its own modules the second name at once. Importing it under that name later
    would set the package's attribute to the module, where the package has a function of the name
    (`util.placement_group`).
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{package}."):
            sys.modules.setdefault("ray." + name.removeprefix("runtime.").removeprefix("compat."), module)


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def install() -> None:
    """Makes `import ray` mean this engine, in this process, its workers, and Python processes that it starts.

    Raises:
        RuntimeError: the real Ray is imported already.
    """
    if not is_installed():
        _install()
    os.environ["PYTHONPATH"] = python_path(os.environ.get("PYTHONPATH", ""))  # for the Pythons that it starts


def _install() -> None:
    known = sys.modules.get("ray")
    file = getattr(known, "__file__", None) or "somewhere"
    if known is not None and os.path.dirname(file) != _shim():
        raise RuntimeError(
            f"ray is imported already, from {file}: "
            "call runtime.compat.ray.install() before anything imports it."
        )
    sys.meta_path.insert(0, _AliasFinder())
    sys.modules["ray"] = runtime
    _name_loaded("runtime")
    for error in vars(exceptions).values():  # tracebacks show a class with its module
        if isinstance(error, type) and error.__module__ == exceptions.__name__:
            error.__module__ = "ray.exceptions"
    _name_logger()


def _name_logger() -> None:
    """Programs set levels and handlers of the logger `ray`. It is the engine's, under both names."""
    logging.root.manager.loggerDict["ray"] = logging.getLogger("runtime")


def is_installed() -> bool:
    """Whether `ray` is this engine in this process."""
    return sys.modules.get("ray") is runtime


def _shim() -> str:
    return os.path.join(location.ROOT, "runtime", "compat", "shim")


def python_path(given: str) -> str:
    """The PYTHONPATH with the folder of `shim/ray.py` in front, which installs the alias when it is imported."""
    paths = [_shim(), *filter(None, given.split(os.pathsep))]
    if not location.is_installed():
        paths.append(location.ROOT)
    return os.pathsep.join(dict.fromkeys(paths))


def main(argv: list[str]) -> None:
    """Runs a program as `python` would have run it, with the alias installed.

    Args:
        argv: `script.py ARGS`, `-m MODULE ARGS` or `-c CODE ARGS`.
    """
    if not argv or argv[0] in ("-h", "--help") or (argv[0] in ("-m", "-c") and len(argv) < 2):
        sys.exit("usage: python -m runtime.compat.ray (script.py | -m module | -c code) [arguments]")
    install()
    program: dict[str, Any]
    if argv[0] == "-m":
        spec = importlib.util.find_spec(argv[1])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{argv[1]}.__main__")
        code = spec.loader.get_code(spec.name) if spec and hasattr(spec.loader, "get_code") else None  # type: ignore[union-attr]
        if spec is None or code is None:
            sys.exit(f"No module named {argv[1]} that can be run")
        program = {"__file__": spec.origin, "__spec__": spec, "__package__": spec.parent}
        sys.argv = [str(spec.origin), *argv[2:]]
    elif argv[0] == "-c":
        code = compile(argv[1], "<string>", "exec", dont_inherit=True)
        program = {}
        sys.argv = ["-c", *argv[2:]]
        sys.path[0] = ""
    else:
        try:
            with open(argv[0], "rb") as file:
                code = compile(file.read(), os.path.abspath(argv[0]), "exec", dont_inherit=True)
        except OSError as error:
            sys.exit(f"cannot open {argv[0]}: {error.strerror}")
        program = {"__file__": os.path.abspath(argv[0])}
        sys.argv = list(argv)
        sys.path[0] = os.path.dirname(os.path.realpath(argv[0]))
    module = types.ModuleType("__main__")
    vars(module).update(program, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(code, vars(module))


if __name__ == "__main__":
    # Not this copy of the module, which is `__main__` and about to be replaced.
    from runtime.compat import ray as _alias

    _alias.main(sys.argv[1:])
