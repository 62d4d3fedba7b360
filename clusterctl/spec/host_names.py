"""How a spec names a machine that is reached by SSH. Pure."""

from __future__ import annotations


def split_machine(text: str) -> tuple[str, str, int]:
    """The user ("": the default one), the host and the port (0: the default one) of HOST, USER@HOST, HOST:PORT, an IPv6
    address, or [IPv6]:PORT.

    Raises:
        ValueError: it is none of them.
    """
    user, _, rest = text.strip().rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, closed, port = rest[1:].partition("]")
        host, port = host if closed else "", port.removeprefix(":")
    elif rest.count(":") == 1:
        host, colon, port = rest.partition(":")
        port = port or colon
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host or len((user + host).split()) > 1 or (port and not 0 < number < 2**16):
        raise ValueError(f"'{text}' is not a machine: write HOST, HOST:PORT or USER@HOST")
    return user, host, number
