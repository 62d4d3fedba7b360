"""A way to a host on which everything takes a while, as over a wide network: `python far.py HOST PORT MILLISECONDS`
joins its input and output to a port, and delays what goes either way by half of the round trip. For
`ssh_proxy_command`; see `proxy_command`.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable

_BLOCK = 65536


def proxy_command(round_trip_ms: float) -> str:
    """The way to a host that is so far away."""
    return f"{sys.executable} {os.path.abspath(__file__)} %h %p {round_trip_ms:g}"


def main(host: str, port: int, delay_s: float) -> None:
    """Until one side ends."""
    time.sleep(2 * delay_s)  # TCP's own greeting
    with socket.create_connection((host, port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        arguments = (lambda: stream.recv(_BLOCK), _write, delay_s)
        threading.Thread(target=_pass_on, args=arguments, daemon=True).start()
        _pass_on(lambda: os.read(0, _BLOCK), stream.sendall, delay_s)


def _pass_on(read: Callable[[], bytes], write: Callable[[bytes], object], delay_s: float) -> None:
    """Ends the process with what it reads from, when all of that is written."""
    late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def deliver() -> None:
        while True:
            due, data = late.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if data:
                    write(data)
                    continue
            except OSError:
                pass  # nobody is there any more
            os._exit(0)

    threading.Thread(target=deliver, daemon=True).start()
    data = b"."
    while data:
        try:
            data = read()
        except OSError:
            data = b""
        late.put((time.monotonic() + delay_s, data))
    threading.Event().wait()


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 2000)
