"""References that travel over a library's own connections.

The sender keeps its `ObjectRef` until the receiver has said that its owner knows of the new borrower: see `accept`.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.object_ref import ObjectRef

from .process import connected
from .serialization import Serialized


def put(serialized: Serialized) -> ObjectRef:
    """An object of this process, of a value that is serialized already. It keeps the references in the value.

    Raises:
        RaySystemError: the node agent is gone.
    """
    return connected().objects.put_serialized(serialized)


def address_of(ref: ObjectRef) -> tuple[bytes, bytes]:
    """What `accept` makes the reference of. It keeps nothing."""
    return ref.binary(), connected().objects.owner_address(ref._entry)


def accept(binary: bytes, owner: bytes, registered: Callable[[], None] | None = None) -> ObjectRef:
    """The reference that another process has sent.

    Args:
        registered: is called, under the engine's lock, once the owner knows of this process. Until then the sender
            must keep its reference.
    """
    core = connected()
    ref = core.objects.borrow(binary, owner)
    core.objects.register_borrows()
    if registered is not None:
        with core.lock:
            core.borrowing.when_registered([ref._entry], registered)
    core.links.pump.kick()
    return ref
