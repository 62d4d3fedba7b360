"""What happens when every copy of an argument is lost before its call begins.

The argument has to be made again, perhaps with the very resources that the call holds. So the call does not wait with
resources that others could use. A task goes back to its submitter, which sends it again when the argument is there. A
constructor gives the actor's resources back while it waits; then its process ends, and the actor is placed anew. Only
the call of a living actor waits in the actor, which keeps its resources for life.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from runtime import exceptions
from runtime._ownership.records import STORED, Entry
from runtime._transport.connection import Connection
from runtime._wire.messages.node import ArgumentsLost
from runtime._wire.messages.worker import Push, Returned

from .arguments import LostArguments

if TYPE_CHECKING:
    from runtime._process.core_worker import Core


OWNERS_ANSWER_S = 1.0
"""How long a constructor waits with its resources. An owner that knows of another copy says so sooner."""


# ------------------------------------------------------------ in the worker


def unpack(core: Core, push: Push) -> tuple[Sequence[Any], dict[str, Any], list[Entry]]:
    """Rebuilds the arguments of a call that is about to begin. See `ArgumentReader.unpack`.

    Raises:
        LostArguments: those of a task are lost: it goes back.
        ActorExit: those of a constructor were, and are there again: its process ends.
    """
    if push.method and push.method != "__init__":
        return core.argument_reader.unpack(push)
    try:
        return core.argument_reader.unpack(push, waits=False)
    except LostArguments as error:
        if not push.method:
            raise
        _wait_without_resources(core, push, {lost.object_id for lost in error.lost})
        return core.argument_reader.unpack(push)


def send_back(core: Core, connection: Connection, push: Push, error: LostArguments) -> None:
    """Gives a task to its submitter, which hears what is lost."""
    with core.lock:
        connection.send(Returned([push.task_id], lost=error.lost))


def _wait_without_resources(core: Core, push: Push, object_ids: set[bytes]) -> None:
    refs = []
    with core.lock:
        for argument in push.refs:
            if argument.object_id in object_ids and argument.value is not None:
                entry = core.borrowing.borrowed_entry(argument.object_id, argument.owner)
                refs.append(core.objects.new_ref(entry))
                entry.value = argument.value
                take_for_lost(core, entry, argument.value.locations)

    def there() -> bool:
        return all(ref._entry.value is not None for ref in refs)

    if core.pump.wait(there, OWNERS_ANSWER_S):
        return
    core.agent.send(ArgumentsLost())
    # Without a deadline, as a `get`: an argument comes, or an error in its place if nobody can make it again.
    core.pump.wait(there, None)
    values = [ref._entry.value for ref in refs]
    if not any(value is not None and value.kind & 1 for value in values):
        assert core.executor is not None
        core.executor.terminate("The arguments of its constructor had to be made again.")


# ------------------------------------------------------------ in the submitter


def take_for_lost(core: Core, entry: Entry, locations: Sequence[bytes]) -> None:
    """No copy of an argument was found there: has it made again unless another one is known. Under the lock."""
    value = entry.value
    if value is None or value.kind != STORED:
        return
    left = tuple(node_id for node_id in value.locations if node_id not in locations)
    if left:
        entry.value = msgspec.structs.replace(value, locations=left)
        return
    owner = core.objects.owner_address(entry)
    error = exceptions.ObjectLostError(entry.object_id.hex(), owner, "")
    refusal = core.reader.rebuild_lost(entry, value, error)
    if refusal is not None:
        entry.value = core.objects.error_value(refusal)
