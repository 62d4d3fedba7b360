"""The classes of this node's actors, as the control store keeps them: asked for once, not by each actor's process."""

from __future__ import annotations

from collections import OrderedDict

from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.control import DEFINITIONS, KvGet

MOST_BYTES = 32 * 2**20


class Definitions:
    """Pickled classes by their digest, which never change."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        self._size_bytes = 0

    async def get(self, key: bytes) -> bytes | None:
        """The class, or None if it is not available now: a retry then gets the error."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        try:
            pickled = (await self._control.call(KvGet(DEFINITIONS, key))).value
        except CallError:
            return None
        if pickled is not None and key not in self._known and len(pickled) <= MOST_BYTES:
            self._known[key] = pickled
            self._size_bytes += len(pickled)
            while self._size_bytes > MOST_BYTES:
                self._size_bytes -= len(self._known.popitem(last=False)[1])
        return pickled
