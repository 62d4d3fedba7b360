"""What drivers are told of spilling: one line when much has gone to disk, and one more whenever it has become twice as
much. Pure.
"""

from __future__ import annotations

MIB = 1 << 20


class SpillReport:
    """Counts what one node spills.

    Args:
        first_bytes: the amount that is worth the first line; 0: there are no lines.
    """

    def __init__(self, first_bytes: int) -> None:
        self._next_bytes = first_bytes
        self._is_first = True
        self._bytes = 0
        self._count = 0
        self._writing = 0
        self._since_s = 0.0
        self._busy_s = 0.0

    def begun(self, now: float) -> None:
        """An object is being written."""
        if not self._writing:
            self._since_s = now
        self._writing += 1

    def ended(self, size_bytes: int, now: float) -> str:
        """It is written, or `size_bytes` is 0 because it was not. Returns the line to print, or ""."""
        self._writing -= 1
        self._busy_s += now - self._since_s
        self._since_s = now
        if not size_bytes:
            return ""
        self._bytes += size_bytes
        self._count += 1
        if not 0 < self._next_bytes <= self._bytes:
            return ""
        while self._next_bytes <= self._bytes:
            self._next_bytes *= 2
        line = (
            f"Spilled {self._bytes // MIB} MiB, {self._count} objects, "
            f"write throughput {self._bytes / max(self._busy_s, 1e-6) / MIB:.0f} MiB/s."
        )
        if self._is_first:
            self._is_first = False
            line += " RAY_verbose_spill_logs=0 turns this message off."
        return line
