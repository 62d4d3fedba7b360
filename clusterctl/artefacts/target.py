"""What a runtime is made for: the minor version of Python, the CPU and the C library of a machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES

LEAST_PYTHON = (3, 11)
"""The oldest Python on which the engine runs."""
_ABI = re.compile(r"cpython-(\d)(\d+)-(\w+)-linux-gnu")
_MACHINES = ("x86_64", "aarch64")
_GLIBC = ((2, 28), (2, 17))
"""Wheels are chosen for one of these, the newest that a machine has: two machines of one kind then get the same."""
_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
"""Older names of platforms, which wheels still have (https://peps.python.org/pep-0600)."""


class Unsupported(ValueError):
    """There is no runtime for such a Python."""


class NoRuntime(Exception):
    """The runtime for a target is not to be had. `advice`: what can be done."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what, advice)
        self.what = what
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.what}. {self.advice}"


@dataclass(frozen=True, slots=True)
class Target:
    """What a runtime is made for.

    Attributes:
        python: the minor version, e.g. (3, 12).
        machine: the CPU, as the kernel names it: x86_64 or aarch64.
        glibc: the version of the C library that wheels may need.
    """

    python: tuple[int, int]
    machine: str
    glibc: tuple[int, int] = _GLIBC[0]

    @classmethod
    def read(cls, abi: str, libc: str = "") -> Target:
        """The target of a machine.

        Args:
            abi: of its Python's extension modules, e.g. "cpython-312-x86_64-linux-gnu".
            libc: its C library, e.g. "glibc-2.36"; "": unknown, taken for one that is not old.

        Raises:
            Unsupported: no runtime can be made for it.
        """
        match = _ABI.fullmatch(abi)
        if match is None:
            raise Unsupported(_why_not(abi))
        python, machine = (int(match[1]), int(match[2])), match[3]
        if python < LEAST_PYTHON:
            raise Unsupported(
                f"its Python is {text(python)}, and the engine needs {text(LEAST_PYTHON)} or newer"
            )
        if machine not in _MACHINES:
            raise Unsupported(f"its CPU is {machine}, and the engine runs on {' and '.join(_MACHINES)}")
        version = re.fullmatch(r"glibc-(\d+)\.(\d+).*", libc)
        has = (int(version[1]), int(version[2])) if version else _GLIBC[0]
        glibc = next((least for least in _GLIBC if has >= least), None)
        if glibc is None:
            raise Unsupported(
                f"its C library is {libc}, and the engine needs glibc {text(_GLIBC[-1])} or newer"
            )
        return cls(python, machine, glibc)

    @classmethod
    def here(cls) -> Target | None:
        """That of the Python that runs this; None: it is none that machines can have."""
        try:
            return cls.read(own_abi())
        except Unsupported:
            return None

    @property
    def abi(self) -> str:
        """Of extension modules."""
        return f"cpython-{self.python[0]}{self.python[1]}-{self.machine}-linux-gnu"

    @property
    def is_here(self) -> bool:
        """Whether what is installed here runs there."""
        return self.abi == own_abi()

    @property
    def version(self) -> str:
        """Of Python, e.g. "3.12"."""
        return text(self.python)

    def __str__(self) -> str:
        return f"Python {self.version} on {self.machine} with glibc {text(self.glibc)}"

    def platforms(self) -> list[str]:
        """The platforms whose wheels run there, by their names in wheels, the best first."""
        oldest = 5 if self.machine == "x86_64" else 17
        names = []
        for minor in range(self.glibc[1], oldest - 1, -1):
            names.append(f"manylinux_2_{minor}_{self.machine}")
            if legacy := _LEGACY.get((2, minor)):
                names.append(f"{legacy}_{self.machine}")
        return names

    def environment(self) -> Mapping[str, str]:
        """The values of environment markers there (https://peps.python.org/pep-0508)."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.version}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.version}.0",
            "python_version": self.version,
            "sys_platform": "linux",
        }


def own_abi() -> str:
    """The binary interface of the Python that runs this."""
    # Not sysconfig's SOABI: two threads that ask for their first variable at once may get None (Python 3.11).
    return EXTENSION_SUFFIXES[0].removeprefix(".").removesuffix(".so")


def text(version: tuple[int, int]) -> str:
    """E.g. "3.12"."""
    return f"{version[0]}.{version[1]}"


def _why_not(abi: str) -> str:
    if "pypy" in abi:
        return "its Python is PyPy, and the engine runs on CPython"
    if "musl" in abi:
        return "its C library is musl (Alpine), and the engine needs glibc"
    if re.match(r"cpython-\d+[a-z]+-", abi):
        return f"its Python is a free-threaded or debug build ({abi}), and the engine needs an ordinary one"
    return f"its Python is for {abi}, and the engine needs CPython on Linux with glibc"
