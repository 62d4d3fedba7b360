"""Channels: one writer, n named readers, values of any size, in the node's shared memory or over TCP.

    writer = create("sums", readers=["left", "right"], capacity=8)
    address = writer.address            # picklable; pass it to the processes that read
    reader = open_reader(address, "left", timeout_s=10)
    writer.put(array, timeout_s=5)      # waits while a reader is `capacity` values behind
    array = reader.take(timeout_s=5)    # numpy arrays are read in place
    writer.close()                      # readers take what is left, then get ChannelClosedError

See `writer.Writer` and `reader.Reader` for what each call guarantees, and docs/adr/0010-channels.md for why it is built
so. `positions` and `blocks` are pure; `memory`, `rendezvous`, `forwarding` and `sources` touch the system.
"""

from .address import ChannelAddress, Place
from .errors import ChannelClosedError, ChannelError, ChannelFailedError, ChannelTimeoutError, PeerLostError
from .reader import Reader, open_reader
from .writer import Pickled, Writer, create, dump_plain, serialize

__all__ = [
    "ChannelAddress",
    "ChannelClosedError",
    "ChannelError",
    "ChannelFailedError",
    "ChannelTimeoutError",
    "PeerLostError",
    "Pickled",
    "Place",
    "Reader",
    "Writer",
    "create",
    "dump_plain",
    "open_reader",
    "serialize",
]
