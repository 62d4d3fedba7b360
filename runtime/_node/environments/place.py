"""What an environment comes down to for a worker process."""

from __future__ import annotations

import msgspec

Part = tuple[str, str]
"""One thing that environments are made of: the kind of its cache, and its name there."""

STORE_IN_CONTAINER = "/proc/self/fd/4"
"""The node's shared memory, as workers in containers open it: they have it from their zygote."""


class Container(msgspec.Struct, frozen=True):
    """The container in which a zygote and its workers run.

    Attributes:
        image: its name, as podman takes it.
        options: further options of `podman run`.
        folders: of the node, which the container sees in the same place.
    """

    image: str
    options: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


class Interpreter(msgspec.Struct, frozen=True):
    """Which Python a worker runs in. Workers of equal interpreters come from one zygote.

    Attributes:
        command: starts Python; empty: like the node agent itself.
        variables: those that Python or its libraries read when they start.
        cwd: where the command is run; "" for anywhere.
        container: where it is run; None: on the node itself.
    """

    command: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    container: Container | None = None


DEFAULT_INTERPRETER = Interpreter()


class WorkerPlace(msgspec.Struct, frozen=True):
    """What a worker is given before its first line runs.

    Attributes:
        path: goes to the front of `sys.path`.
        env: variables.
        hook: the setup hook that it calls first: its path, or its package's URI; "" for none.
    """

    cwd: str = ""
    path: list[str] = msgspec.field(default_factory=list)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    interpreter: Interpreter = DEFAULT_INTERPRETER
    hook: str = ""
