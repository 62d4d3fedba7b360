"""What a command reads: written to it by a thread, while its output is read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable


class Feeder:
    """Writes all of `data`, then closes. A command that reads no more ends it, for its exit status says why."""

    def __init__(
        self, data: Iterable[bytes], write: Callable[[bytes], object], close: Callable[[], object]
    ) -> None:
        self._data = data
        self._write = write
        self._close = close
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feeds a command", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Waits for the thread, if there is one. Whoever calls has taken away what it writes to."""
        if self._thread.ident is not None:
            self._thread.join()

    def check(self) -> None:
        """Raises what `data` raised: the command saw its input end early."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for block in self._data:
                try:
                    self._write(block)
                except OSError:
                    return
        except BaseException as error:
            self._error = error
        finally:
            with contextlib.suppress(OSError):
                self._close()
