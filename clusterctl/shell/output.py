"""What a command writes, as `Shell.run` hands it out: lines as they appear, and the end of it all."""

from __future__ import annotations

from collections.abc import Callable

KEEP_BYTES = 2**20


class Output:
    """Takes bytes in any portions. `on_line` gets each line without its newline."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self._kept = bytearray()
        self._line = b""

    def take(self, data: bytes) -> None:
        """More has come."""
        self._kept.extend(data)
        del self._kept[:-KEEP_BYTES]
        if self._on_line is not None:
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._on_line(line.decode(errors="replace"))

    def end(self) -> str:
        """Nothing more comes; returns the last `KEEP_BYTES` of all."""
        if self._on_line is not None and self._line:
            self._on_line(self._line.decode(errors="replace"))
        return self._kept.decode(errors="replace")
