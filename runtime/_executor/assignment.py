"""What a worker is for at the moment: the lease of its tasks, or its actor for life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runtime._owner.context import Execution
from runtime._owner.functions import full_name, is_async, shown_name
from runtime._wire.messages.worker import ActorSetup, BindLease, Push

from . import thread_limit
from .devices import Devices
from .owner_side import Definitions


class Assignment:
    """The lease and the actor of a worker process.

    Attributes:
        actor: the user's object, once it is constructed.
        unfinished: the same while its constructor runs, and after that has failed.
        setup: how the actor was to be made, from the start of its construction on.
        is_async: whether the actor's calls run on event loops.
        current_name: whose output the process prints.
        lease: what tasks may use.
    """

    def __init__(self, functions: Definitions) -> None:
        self._functions = functions
        self._prefix = ""  # of the names of the actor's methods
        self.devices = Devices()
        self.actor: Any = None
        self.unfinished: Any = None
        self.setup: ActorSetup | None = None
        self.is_async = False
        self.current_name = ""
        self.lease: BindLease | None = None

    def bind(self, lease: BindLease) -> None:
        """The tasks to come run under this lease."""
        self.lease = lease
        self.devices.bind(lease.gpu_ids, lease.other_ids)
        thread_limit.follow_lease(lease.resources)

    def execution(self, push: Push) -> Execution:
        """The record of a call that begins."""
        function_name = self._prefix + push.method if push.method else self._functions.name(push.key)
        return Execution(
            push.task_id,
            push.name or function_name.rpartition(".")[2],
            function_name,
            self.lease,
            self.setup.actor_id if self.setup else b"",
            push.attempt,
        )

    def becomes_actor(self, setup: ActorSetup, running: Execution) -> None:
        """The process is an actor's from now on; `running` is the call of its constructor."""
        self.setup = setup
        if setup.lease is not None:
            self.bind(msgspec.structs.replace(setup.lease, capture_child_tasks=setup.capture_child_tasks))
        running.actor_id = setup.actor_id
        running.lease = self.lease
        self.current_name = setup.class_name

    def knows_class(self, cls: type, running: Execution) -> None:
        """The actor's class is loaded: calls are named after it, those of async actors after its qualified name, as in
        Ray."""
        assert self.setup is not None
        self.is_async = is_async(cls)
        self._prefix = full_name(cls, self.setup.qualified_name if self.is_async else "") + "."
        running.function_name = f"{self._prefix}__init__"

    def construct(self, cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls the class. Errors of the constructor show the `repr` of the instance."""
        if any("__call__" in vars(base) for base in type(cls).__mro__ if base not in (type, object)):
            return cls(*args, **kwargs)  # as its metaclass wants it
        actor = cls.__new__(cls, *args, **kwargs)
        if isinstance(actor, cls):
            self.unfinished = actor
            actor.__init__(*args, **kwargs)
            self.unfinished = None
        return actor

    def constructed(self, actor: Any) -> None:
        """The actor is there."""
        assert self.setup is not None
        self.actor = actor
        self.current_name = shown_name(actor, self.setup.class_name)
