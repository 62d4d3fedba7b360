"""Imports of daemons, which are started often and have to come up fast."""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any, cast

from runtime._system import location

_WITHOUT = {"ssl": "asyncio", "_hashlib": "hashlib", "typing_extensions": "msgspec"}
"""Costly modules, and who does without when they are missing. The first two load OpenSSL."""
_LATER = frozenset(
    (
        "asyncio.sslproto",
        "asyncio.staggered",
        "inspect",
        "linecache",
        "locale",
        "msgspec.inspect",
        "textwrap",
    )
)
"""What is imported wherever daemons begin, and hardly used: it explains failures, describes code, finds other ways. No
packages: whoever imports a submodule of one, and whoever runs the package, could wait for each other."""


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """While it lasts, what is imported comes cheaper. For a daemon's first imports, in a process that runs no
    code of users.

    OpenSSL is not loaded: asyncio comes without TLS, which no daemon's event loop uses, and hashlib and hmac come with
    Python's own digests. All that can be had afterwards: `ssl` as ever, and whoever imports `hashlib` or `hmac` then
    gets OpenSSL's digests, which are faster for much data. The code of some modules runs when something of them is
    asked for. Our own modules come as an index says, where there is one. And nobody looks for garbage among what is
    imported: it stays.
    """
    modules = cast("dict[str, object]", sys.modules)
    hidden = [name for name, user in _WITHOUT.items() if name not in modules and user not in modules]
    for name in hidden:
        modules[name] = None  # its user takes this for a Python that has none
    index = location.index()
    finders = [_FindLater(), *([_FindIndexed(index)] if index else ())]
    sys.meta_path[:0] = finders
    gc.disable()
    try:
        yield
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
            finder.close()
        for name in hidden:
            del modules[name]
        if "_hashlib" in hidden:
            for name in ("hashlib", "hmac"):
                modules.pop(name, None)
        gc.freeze()
        gc.enable()


class _FindLater:
    """Finds modules of `_LATER`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = cast(Any, _LoadLater(spec.loader))
        return spec

    def close(self) -> None:
        """Nothing is kept open."""


class _FindIndexed:
    """Finds and loads modules of the zip in which these packages are, in a fraction of the time that `zipimport` takes:
    it looks nowhere else, and opens the file once."""

    def __init__(self, index: str) -> None:
        with open(index, "rb") as file:
            self._places: dict[str, tuple[int, int, bool]] = marshal.loads(file.read())
        self._zip = os.open(location.ROOT, os.O_RDONLY | os.O_CLOEXEC)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._places:
            return None
        base = f"{location.ROOT}/{name.replace('.', '/')}"
        is_package = self._places[name][2]
        origin = f"{base}/__init__.pyc" if is_package else f"{base}.pyc"
        spec = ModuleSpec(name, cast(Any, self), origin=origin, is_package=is_package)
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(base)  # what is imported later is found there
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """As ever."""

    def exec_module(self, module: ModuleType) -> None:
        offset, size, _ = self._places[module.__name__]
        exec(marshal.loads(os.pread(self._zip, size, offset)), module.__dict__)

    def close(self) -> None:
        os.close(self._zip)


class _LoadLater:
    """Makes a module whose code runs when something of it is first asked for, by whichever thread."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = RLock()
        self._begun = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Later(spec.name)

    def exec_module(self, module: _Later) -> None:
        module.run = self._run

    def _run(self, module: _Later) -> None:
        """Once. Other threads wait meanwhile."""
        with self._lock:
            if not self._begun:
                self._begun = True
                module.__loader__ = self._loader
                if module.__spec__ is not None:
                    module.__spec__.loader = self._loader
                self._loader.exec_module(module)


class _Later(ModuleType):
    # Not `importlib.util.LazyLoader`: its modules run as soon as they are imported again, and in two threads twice.
    __slots__ = ("run",)
    run: Callable[[_Later], None] | None

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.run = None  # it is being imported

    def __getattr__(self, name: str) -> Any:
        """What is not there, yet or at all."""
        if self.run is not None:
            self.run(self)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
