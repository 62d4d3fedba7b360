"""All errors that programs can see, under Ray's names.

They can be pickled, have the ids concerned as fields, and say what to do next.

```
RayError
├── RayTaskError                          raised as RayTaskError(<Cause>), also an instance of <Cause>
├── RayActorError
│   ├── ActorDiedError
│   └── ActorUnavailableError
├── ObjectLostError
│   ├── ObjectFetchTimedOutError
│   ├── ObjectFreedError
│   ├── ObjectReconstructionFailedError
│   ├── OwnerDiedError
│   └── ReferenceCountingAssertionError   (and AssertionError)
├── RaySystemError
│   ├── RayCgraphCapacityExceeded
│   ├── RayChannelError
│   │   └── RayChannelTimeoutError        (and TimeoutError)
│   ├── RayDirectTransportError
│   └── StreamingGeneratorReplayInconsistentError
├── ActorAlreadyExistsError               (and ValueError)
├── ActorHandleNotFoundError              (and ValueError)
├── GetTimeoutError                       (and TimeoutError)
├── ActorPlacementGroupRemoved, TaskPlacementGroupRemoved
├── ActorUnschedulableError, TaskUnschedulableError
├── AsyncioActorExit
├── AuthenticationError
├── CrossLanguageError
├── LocalRayletDiedError, NodeDiedError, WorkerCrashedError
├── ObjectRefStreamEndOfStreamError
├── ObjectStoreFullError, OutOfDiskError, OutOfMemoryError
├── OufOfBandObjectRefSerializationException
├── PendingCallsLimitExceeded
├── PlasmaObjectNotAvailable
├── RpcError
├── RuntimeEnvSetupError
├── TaskCancelledError
├── UnserializableException
└── UserCodeException
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._core.ids import TaskID
from ._task_error import RayError as RayError
from ._task_error import RayTaskError as RayTaskError
from ._task_error import UnserializableException as UnserializableException

# ---------------------------------------------------------------- errors raised by user code


class UserCodeException(RayError):
    """User code that the engine calls (a hook, a callback, a data transformation) raised."""


class CrossLanguageError(RayError):
    """A task written in another language raised.

    Args:
        ray_exception: an object that describes it, by its `formatted_exception_string` if it has one.
    """

    def __init__(self, ray_exception: object) -> None:
        super().__init__(ray_exception)

    def __str__(self) -> str:
        shown = getattr(self.args[0], "formatted_exception_string", self.args[0])
        return f"A call into another language failed:\n{shown}"


class TaskCancelledError(RayError):
    """The task was cancelled with `cancel`, before or while it ran."""

    def __init__(self, task_id: TaskID | None = None, error_message: str | None = None) -> None:
        super().__init__(task_id, error_message)
        self.task_id = task_id
        self.error_message = error_message

    def __str__(self) -> str:
        if self.task_id is None:
            return self.error_message or "This task or its parent was cancelled."
        return f"Task: {self.task_id!r} was cancelled. {self.error_message or ''}".rstrip()


# ---------------------------------------------------------------- actors


@dataclass(frozen=True, slots=True)
class ActorDeath:
    """Which actor died and why: a cause for `ActorDiedError`.

    Attributes:
        reason: what ended the actor, in one or more sentences.
        actor_id: in hex.
        never_started: it died before its constructor finished.
        preempted: the provider took its node away.
    """

    reason: str
    actor_id: str | None = None
    class_name: str = ""
    name: str = ""
    namespace: str = ""
    pid: int | None = None
    ip: str = ""
    never_started: bool = False
    preempted: bool = False

    def __str__(self) -> str:
        facts = {
            "class_name": self.class_name,
            "actor_id": self.actor_id,
            "pid": self.pid,
            "name": self.name,
            "namespace": self.namespace,
            "ip": self.ip,
        }
        lines = [f"\t{key}: {value}" for key, value in facts.items() if value]
        last = (
            ["The actor never ran - it was cancelled before it started running."]
            if self.never_started
            else []
        )
        return "\n".join([_DIED, *lines, self.reason, *last]).rstrip("\n")


_DIED = "The actor died unexpectedly before finishing this task."


class RayActorError(RayError):
    """An actor did not finish a call.

    Args:
        actor_id: the actor in hex, if known.
        error_msg: what happened.
        actor_init_failed: its constructor raised.
        preempted: the provider took its node away.
    """

    def __init__(
        self,
        actor_id: str | None = None,
        error_msg: str = "The actor experienced an error before finishing this task.",
        actor_init_failed: bool = False,
        preempted: bool = False,
    ) -> None:
        super().__init__(actor_id, error_msg, actor_init_failed, preempted)
        self.actor_id = actor_id
        self.error_msg = error_msg
        self._actor_init_failed = actor_init_failed
        self._preempted = preempted

    @property
    def actor_init_failed(self) -> bool:
        """Whether the constructor raised."""
        return self._actor_init_failed

    @property
    def preempted(self) -> bool:
        """Whether the actor died because its node was taken away by the provider."""
        return self._preempted

    def __str__(self) -> str:
        return self.error_msg


class ActorDiedError(RayActorError):
    """The actor is dead and will not be restarted. Start a new one.

    Args:
        cause: the error that its constructor raised, an `ActorDeath`, a sentence, or None.
    """

    def __init__(
        self, cause: RayTaskError | UnserializableException | ActorDeath | str | None = None
    ) -> None:
        actor_id, preempted = None, False
        if isinstance(cause, RayTaskError | UnserializableException):
            actor_id = getattr(cause, "_actor_id", None)
            text = f"The actor died because of an error raised in its creation task, {cause}"
        elif isinstance(cause, ActorDeath):
            actor_id, preempted, text = cause.actor_id, cause.preempted, str(cause)
        else:
            text = f"{_DIED} {cause}" if cause else _DIED
        super().__init__(actor_id, text, isinstance(cause, RayTaskError | UnserializableException), preempted)
        self.args = (cause,)

    @staticmethod
    def from_task_error(task_error: RayTaskError) -> ActorDiedError:
        """The error of every call to an actor whose constructor raised `task_error`."""
        return ActorDiedError(task_error)


class ActorUnavailableError(RayActorError):
    """The actor is temporarily unreachable: it is restarting, or the network to it is down.

    The call may or may not have run. Retry it, or set `max_task_retries`.

    Args:
        error_message: what happened.
        actor_id: the actor, as bytes.
    """

    def __init__(self, error_message: str, actor_id: bytes | None) -> None:
        shown = actor_id.hex() if actor_id is not None else None
        text = (
            f"The actor {shown or '(unknown)'} is unavailable: {error_message}. The task may or may not "
            "have been executed on the actor; repeat it if it is safe to, or set max_task_retries."
        )
        super().__init__(shown, text)
        self.args = (error_message, actor_id)


class PendingCallsLimitExceeded(RayError):
    """The caller already has `max_pending_calls` unfinished calls of this actor. Wait for some of them, then retry."""


class AsyncioActorExit(RayError):
    """Raised inside an async actor method by `exit_actor`, to unwind it."""


class ActorAlreadyExistsError(ValueError, RayError):
    """A live actor in the namespace already has this name."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message


class ActorHandleNotFoundError(ValueError, RayError):
    """The cluster has no actor for this handle: it ended long ago, or belongs to another cluster."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message


# ---------------------------------------------------------------- processes, nodes, the system


class _FixedMessage(RayError):
    """An error with a fixed message per class; arguments add details."""

    TEXT = ""

    def __str__(self) -> str:
        return " ".join([self.TEXT, *map(str, self.args)]).strip()


class WorkerCrashedError(_FixedMessage):
    """The worker process died while it ran the task, and no retries are left."""

    TEXT = (
        "The worker died unexpectedly while executing this task. Look for its last lines in the session's logs, and "
        "in dmesg for the kernel's out-of-memory killer; max_retries lets the task run again."
    )


class LocalRayletDiedError(_FixedMessage):
    """The agent of this process's node died. This process can no longer submit work."""

    TEXT = (
        "The node agent of this node died. See the agent's log in the session's folder, then connect again."
    )


class NodeDiedError(RayError):
    """A node that the operation needed died."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RpcError(RayError):
    """A request to another process of the cluster failed."""

    def __init__(self, message: str, rpc_code: int | str | None = None) -> None:
        super().__init__(message, rpc_code)
        self.message = message
        self.rpc_code = rpc_code

    def __str__(self) -> str:
        return self.message


class AuthenticationError(RayError):
    """The peer's secret is missing or wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return (
            f"{self.message}. Every process of a cluster needs the cluster's secret; on another machine, "
            "pass it on with the cluster's files."
        )


class RaySystemError(RayError):
    """The engine itself failed, or was used before `init`.

    Args:
        client_exc: what happened.
        traceback_str: where, if that is known.
    """

    def __init__(self, client_exc: object, traceback_str: str | None = None) -> None:
        super().__init__(client_exc, traceback_str)
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        text = f"System error: {self.client_exc}"
        return f"{text}\ntraceback: {self.traceback_str}" if self.traceback_str else text


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """A retried generator yielded a different number of values than before."""


class RayChannelError(RaySystemError):
    """A channel of a compiled graph failed or was closed."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """A channel of a compiled graph was not ready in time."""


class RayCgraphCapacityExceeded(RaySystemError):
    """A compiled graph has too many executions in flight. Fetch results first."""


class RayDirectTransportError(RaySystemError):
    """A tensor could not be moved directly between accelerators."""


class RuntimeEnvSetupError(RayError):
    """The runtime environment of the task or actor could not be set up."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        first = "Failed to set up runtime environment."
        return f"{first}\n{self.error_message}" if self.error_message else first


# ---------------------------------------------------------------- scheduling


class TaskUnschedulableError(RayError):
    """No node can ever run the task under its scheduling strategy."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The task is not schedulable: {self.error_message}"


class ActorUnschedulableError(RayError):
    """No node can ever run the actor under its scheduling strategy."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The actor is not schedulable: {self.error_message}"


class TaskPlacementGroupRemoved(_FixedMessage):
    """The placement group of the task was removed."""

    TEXT = "The placement group of this task has been removed."


class ActorPlacementGroupRemoved(_FixedMessage):
    """The placement group of the actor was removed."""

    TEXT = "The placement group of this actor has been removed."


# ---------------------------------------------------------------- objects


class GetTimeoutError(RayError, TimeoutError):
    """`get` did not receive all values within `timeout` seconds. The tasks continue; call `get` again."""


class PlasmaObjectNotAvailable(RayError):
    """The object is not in this node's store yet."""


class ObjectRefStreamEndOfStreamError(RayError):
    """The generator has no more values."""


class OufOfBandObjectRefSerializationException(RayError):
    """A program pickled a reference itself although the environment forbids it. (The spelling is Ray's.)"""


class ObjectStoreFullError(RayError):
    """The object store has no room, and nothing in it can be evicted or spilled."""

    def __str__(self) -> str:
        advice = (
            "The object store of this node is full of objects that are in use. Drop references that are not "
            "needed any more, or give the node a larger object_store_memory."
        )
        return "\n".join([*map(str, self.args), advice])


class OutOfDiskError(RayError):
    """The object store is full, and so is the disk for spilled objects."""

    def __str__(self) -> str:
        advice = (
            "The object store of this node is full, and so is the disk that it spills to. Free disk space "
            "(`df` shows it), or drop references that are not needed any more."
        )
        return "\n".join([*map(str, self.args), advice])


class OutOfMemoryError(RayError):
    """The node ran low on memory, and its agent killed the worker."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ObjectLostError(RayError):
    """No copy of the object is left, and it cannot be rebuilt.

    Args:
        object_ref_hex: the object's id.
        owner_address: the encoded address of the process that owned it.
        call_site: where the reference was made; "" if not recorded, as without RAY_record_ref_creation_sites.
    """

    def __init__(self, object_ref_hex: str, owner_address: bytes | None, call_site: str) -> None:
        super().__init__(object_ref_hex, owner_address, call_site)
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site

    def _base_str(self) -> str:
        text = f"Failed to retrieve object {self.object_ref_hex}."
        if not self.call_site:
            return text
        made = self.call_site.replace(" | ", "\n  ")
        return f"{text} The ObjectRef was created at: {made}\n"

    def _why(self) -> str:
        return (
            "All its copies went with the nodes that held them, and it cannot be rebuilt. Values of `put` "
            "never are; those of tasks are while max_retries allows it."
        )

    def __str__(self) -> str:
        return f"{self._base_str()} {self._why()}"


class ObjectFetchTimedOutError(ObjectLostError):
    """No node with a copy of the object answered in time."""

    def _why(self) -> str:
        return "It should exist, but no node delivered it in time. Check the network and try again."


class ObjectFreedError(ObjectLostError):
    """The object was freed explicitly while references to it existed."""

    def _why(self) -> str:
        return "It was manually freed. Free an object only when nothing will read it any more."


class OwnerDiedError(ObjectLostError):
    """The owner of the object, which is the process that created the reference, died."""

    def _why(self) -> str:
        return (
            "The object's owner has exited: the process that called `.remote()` or `put()` is gone, and what a "
            "process owns ends with it. Let one that lives longer (the driver, a detached actor) make it."
        )


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was deleted although a reference to it exists."""

    def _why(self) -> str:
        return (
            "Its owner has deleted it as unused although this reference is left: that is a bug in the engine."
        )


class ObjectReconstructionFailedError(ObjectLostError):
    """The object was lost and could not be rebuilt.

    Args:
        reason: a key of `REASON_MESSAGES`.
        reason_message: replaces the message for that key.
    """

    REASON_MESSAGES: ClassVar[dict[str, str]] = {
        "OBJECT_UNRECONSTRUCTABLE_MAX_ATTEMPTS_EXCEEDED": (
            "its task has used up max_retries; a higher value lets it run more often"
        ),
        "OBJECT_UNRECONSTRUCTABLE_LINEAGE_EVICTED": "the description of its task was dropped to save memory",
        "OBJECT_UNRECONSTRUCTABLE_PUT": "it was made by `put`, which cannot be run again",
        "OBJECT_UNRECONSTRUCTABLE_RETRIES_DISABLED": "its task has max_retries=0; any other value allows it",
        "OBJECT_UNRECONSTRUCTABLE_BORROWED": "it crossed several owners, and only the first can rebuild it",
        "OBJECT_UNRECONSTRUCTABLE_REF_NOT_FOUND": "its reference is not known to its owner any more",
        "OBJECT_UNRECONSTRUCTABLE_TASK_CANCELLED": "its task was cancelled",
        "OBJECT_UNRECONSTRUCTABLE_LINEAGE_DISABLED": "rebuilding of lost objects is switched off",
    }

    def __init__(
        self,
        object_ref_hex: str,
        reason: str | None = None,
        reason_message: str | None = None,
        owner_address: bytes | None = None,
        call_site: str = "",
    ) -> None:
        super().__init__(object_ref_hex, owner_address, call_site)
        self.args = (object_ref_hex, reason, reason_message, owner_address, call_site)
        self.reason = reason
        known = self.REASON_MESSAGES.get(reason or "", "for a reason that was not recorded")
        self.reason_message = reason_message or known

    def _why(self) -> str:
        return f"It was lost and cannot be rebuilt: {self.reason_message}. [{self.reason or 'UNKNOWN'}]"
