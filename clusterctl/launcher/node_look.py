"""The one question that a machine is asked before anything is done to it: which runtime is there, which Python, and
does it reach the head. Pure: the command, and what its answer means.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from autoscaler.provider import SetupError
from clusterctl.artefacts.target import LEAST_PYTHON, Target, Unsupported, text

_REACHED = "reached"
_NOTHING = ("",) * 4
# It runs on every machine: `socket`, with what that imports, costs as much as starting Python.
_PROGRAM = f"""\
import os, sys, _imp
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (ValueError, OSError):
    libc = ""
abi = _imp.extension_suffixes()[0].split(".")[1]
print("%d.%d" % sys.version_info[:2], abi, libc.replace(" ", "-") or "-", os.path.realpath(sys.executable))
if len(sys.argv) > 1:
    import _socket
    error = None
    try:
        for family, kind, number, _, address in _socket.getaddrinfo(*sys.argv[1:], 0, _socket.SOCK_STREAM):
            try:
                reach = _socket.socket(family, kind, number)
                reach.settimeout(10)
                reach.connect(address)
                print("{_REACHED}")
                break
            except OSError as failure:
                error = failure
        else:
            print(error)
    except OSError as failure:
        print(failure)
"""


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask.

    Attributes:
        python: the command that starts its Python, as a shell reads it.
        folder: where a node's files are, as a shell reads it.
        version: of Python that the node needs; None: any on which the engine runs.
        reaches: HOST:PORT of the head's control store, to which the node must be able to connect; "": none.
        who: what the Python belongs to.
    """

    python: str
    folder: str
    version: tuple[int, int] | None
    reaches: str = ""
    who: str = "the node"

    def command(self) -> str:
        """Its status says nothing: that there is no Python is an answer, too."""
        host, _, port = self.reaches.rpartition(":")
        address = f"{shlex.quote(host.strip('[]'))} {port}" if self.reaches else ""
        return (
            f'{{ read -r digest < {self.folder}/runtime/digest; }} 2>/dev/null; echo "$digest"\n'
            f"{self.python} -I -S -c {shlex.quote(_PROGRAM)} {address} || true"
        )

    def read(self, output: str) -> Found:
        """What the answer says.

        Raises:
            SetupError: the machine cannot become a node.
        """
        digest, _, said = output.partition("\n")
        words = said.strip()
        lines = words.splitlines()
        version, abi, libc, executable = ([*lines[0].split(" ", 3), *_NOTHING] if lines else _NOTHING)[:4]
        if not executable or (self.version is not None and version != text(self.version)):
            raise SetupError("python version", f"it says {words!r}; {self.who} needs {self._needs()}")
        if self.reaches and lines[-1] != _REACHED:
            raise SetupError(
                "reach the head",
                f"it says {lines[-1]!r}; the head's control store is at {self.reaches}: the network (firewall, "
                "security group) must let the nodes connect to each other",
            )
        return Found(executable, digest, abi, libc)

    def _needs(self) -> str:
        if self.version is None:
            return f"Python {text(LEAST_PYTHON)} or newer"
        return f"Python {text(self.version)}, as the head: programs and their data travel between the two"


@dataclass(frozen=True, slots=True)
class Found:
    """What a machine has.

    Attributes:
        python: the path of its Python.
        runtime: the digest of the runtime that is there.
        abi, libc: see `Target.read`.
    """

    python: str = ""
    runtime: str = ""
    abi: str = ""
    libc: str = ""

    def target(self) -> Target:
        """What its runtime is made for.

        Raises:
            SetupError: there is none for it.
        """
        try:
            return Target.read(self.abi, self.libc)
        except Unsupported as error:
            raise SetupError("python version", f"no runtime fits {self.python}: {error}") from error
