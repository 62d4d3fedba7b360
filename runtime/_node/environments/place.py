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


class Preload(msgspec.Struct, frozen=True):
    """Modules that a zygote imports once for all its workers, and all that decides what the imports see. The folders of
    the job itself do not: their content changes from job to job.

    Attributes:
        modules: their names, in the order of their imports.
        path: folders that go to the front of `sys.path`; equal names have equal content.
        env: the environment's variables, sorted.
        cwd: the current directory; "" for any.
        ray_alias: whether `ray` is the engine.
    """

    modules: tuple[str, ...]
    path: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    ray_alias: bool = False


class Interpreter(msgspec.Struct, frozen=True):
    """Which Python a worker runs in. Workers of equal interpreters come from one zygote.

    Attributes:
        command: starts Python; empty: like the node agent itself.
        variables: those that Python or its libraries read when they start.
        cwd: where the command is run; "" for anywhere.
        container: where it is run; None: on the node itself.
        preload: what the zygote has imported; None: nothing that environments name.
    """

    command: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    container: Container | None = None
    preload: Preload | None = None

    @property
    def plain(self) -> Interpreter:
        """The same without preloaded modules."""
        return msgspec.structs.replace(self, preload=None)


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

    @property
    def modules(self) -> tuple[str, ...]:
        """What a worker has imported before its first task, by itself unless its zygote has."""
        return self.interpreter.preload.modules if self.interpreter.preload is not None else ()

    @property
    def has_set_up(self) -> bool:
        """Whether a worker prepares itself, and tells by `SetUp` how that went."""
        return bool(self.hook or self.modules)
