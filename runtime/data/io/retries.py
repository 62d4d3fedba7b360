"""Repeats what failed because of a network or a busy server, and what failed with an error that the user names."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_TRANSIENT = re.compile(
    r"AWS Error (INTERNAL_FAILURE|NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|UNKNOWN|REQUEST_TIMEOUT)"
    r"|[Tt]imed? ?out|[Cc]onnection (reset|refused|aborted|closed)|[Tt]emporar|ServerDisconnected"
    r"|\b(429|500|502|503|504)\b"
)
ATTEMPTS = 5
ATTEMPTS_OF_NAMED = 10
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Retries:
    """Which errors are worth another attempt. Attempts follow one another in pauses that double, up to 10 s.

    Attributes:
        named: Parts of messages of errors after which the user wants 10 attempts (`DataContext.retried_io_errors`).
            After errors of networks and busy servers there are 5.
    """

    named: tuple[str, ...] = ()

    @classmethod
    def of(cls, data_context: Any = None) -> Retries:
        """By a `DataContext`; None: that of this process."""
        from runtime.data.context import DataContext

        context = DataContext.get_current() if data_context is None else data_context
        return cls(tuple(context.retried_io_errors))

    @property
    def for_disks(self) -> bool:
        """Whether the user names errors that this machine's disks may have."""
        return any(not part.startswith("AWS Error") for part in self.named)

    def attempts(self, error: Exception) -> int:
        """How often to try at most what failed with this error; 1: not again."""
        text = f"{type(error).__name__}: {error}"
        if any(part in text for part in self.named):
            return ATTEMPTS_OF_NAMED
        if isinstance(error, FileNotFoundError | PermissionError):
            return 1
        if isinstance(error, ConnectionError | TimeoutError) or _TRANSIENT.search(text):
            return ATTEMPTS
        return 1

    def call(self, function: Callable[[], T]) -> T:
        """The result of the function, which may be called several times."""
        for attempt in range(1, ATTEMPTS_OF_NAMED + 1):
            try:
                return function()
            except Exception as error:
                if attempt >= self.attempts(error):
                    raise
                _pause(attempt)
        raise AssertionError("unreachable")

    def iterate(self, begin: Callable[[], Iterator[T]]) -> Iterator[T]:
        """What an iterator yields. After an error a new one is begun, and what was yielded already is skipped.

        Each `begin` must give the same items. Errors about content (`ValueError`, `TypeError`, `LookupError`) are
        final, unless the user names them: their texts may quote anything.
        """
        given, attempt = 0, 1
        while True:
            try:
                for number, item in enumerate(begin()):
                    if number >= given:
                        given, attempt = number + 1, 1
                        yield item
                return
            except Exception as error:
                attempts = self.attempts(error)
                is_final = isinstance(error, ValueError | TypeError | LookupError)
                if attempt >= attempts or (is_final and attempts != ATTEMPTS_OF_NAMED):
                    raise
                _pause(attempt)
                attempt += 1


def _pause(attempt: int) -> None:
    time.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1.5))
