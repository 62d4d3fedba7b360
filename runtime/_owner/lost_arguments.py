"""What happens when every copy of an argument is lost before its call begins.

The argument has to be made again, perhaps with the very resources that the call holds. So the call does not wait with
resources that others could use. A task goes back to its submitter, which sends it again when the argument is there. A
constructor gives the actor's resources back while it waits; then its process ends, and the actor is placed anew. Only
the call of a living actor waits in the actor, which keeps its resources for life.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from runtime import exceptions
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.records import STORED, Entry
from runtime._transport.connection import Connection
from runtime._wire.messages.node import ArgumentsLost
from runtime._wire.messages.worker import Push, Returned

from .arguments import ArgumentReader, LostArguments
from .links import Links
from .objects import Objects
from .reading import Reader

OWNERS_ANSWER_S = 1.0
"""How long a constructor waits with its resources. An owner that knows of another copy says so sooner."""


class CallArguments:
    """The worker's side.

    Args:
        end_process: ends this process after its calls, for the given reason.
    """

    def __init__(
        self,
        links: Links,
        objects: Objects,
        borrowing: Borrowing,
        reader: Reader,
        arguments: ArgumentReader,
        end_process: Callable[[str], None],
    ) -> None:
        self._links = links
        self._objects = objects
        self._borrowing = borrowing
        self._reader = reader
        self._arguments = arguments
        self._end_process = end_process

    def unpack(self, push: Push) -> tuple[Sequence[Any], dict[str, Any], list[Entry]]:
        """Rebuilds the arguments of a call that is about to begin. See `ArgumentReader.unpack`.

        Raises:
            LostArguments: those of a task are lost: it goes back.
            ActorExit: those of a constructor were, and are there again: its process ends.
        """
        if push.method and push.method != "__init__":
            return self._arguments.unpack(push)
        try:
            return self._arguments.unpack(push, waits=False)
        except LostArguments as error:
            if not push.method:
                raise
            self._wait_without_resources(push, {lost.object_id for lost in error.lost})
            return self._arguments.unpack(push)

    def send_back(self, connection: Connection, push: Push, error: LostArguments) -> None:
        """Gives a task to its submitter, which hears what is lost."""
        with self._links.lock:
            connection.send(Returned([push.task_id], lost=error.lost))

    def _wait_without_resources(self, push: Push, object_ids: set[bytes]) -> None:
        links, objects = self._links, self._objects
        refs = []
        with links.lock:
            for argument in push.refs:
                if argument.object_id in object_ids and argument.value is not None:
                    entry = self._borrowing.borrowed_entry(argument.object_id, argument.owner)
                    refs.append(objects.new_ref(entry))
                    entry.value = argument.value
                    take_for_lost(objects, self._reader, entry, argument.value.locations)

        def there() -> bool:
            return all(ref._entry.value is not None for ref in refs)

        if links.pump.wait(there, OWNERS_ANSWER_S):
            return
        links.agent.send(ArgumentsLost())
        # Without a deadline, as a `get`: an argument comes, or an error in its place if nobody can make it again.
        links.pump.wait(there, None)
        values = [ref._entry.value for ref in refs]
        if not any(value is not None and value.kind & 1 for value in values):
            self._end_process("The arguments of its constructor had to be made again.")


def take_for_lost(objects: Objects, reader: Reader, entry: Entry, locations: Sequence[bytes]) -> None:
    """No copy of an argument was found there: has it made again unless another one is known. In the submitter, and for
    a constructor in its worker; under the lock."""
    value = entry.value
    if value is None or value.kind != STORED:
        return
    left = tuple(node_id for node_id in value.locations if node_id not in locations)
    if left:
        entry.value = msgspec.structs.replace(value, locations=left)
        return
    error = exceptions.ObjectLostError(entry.object_id.hex(), objects.owner_address(entry), "")
    refusal = reader.rebuild_lost(entry, value, error)
    if refusal is not None:
        entry.value = objects.error_value(refusal)
