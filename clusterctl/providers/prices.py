"""Prices that a cloud was asked for, in a file with their date. Asking goes on beside everything else: whoever wants a
price waits a moment for the first answer, and gets the last one known while a new one is on its way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from autoscaler.provider import ProviderError
from runtime._system import files

log = logging.getLogger(__name__)

_DAY_S = 86400.0
_PATIENCE_S = 2.0
"""So long, all in all, a process waits for prices of which it knows none."""
_AGAIN_S = 600.0
"""So long a cloud is left alone that does not tell them."""


class PriceList(Protocol):
    """The prices of a cloud's machines."""

    def source(self) -> str:
        """Where those that were given out came from, and their day, in words."""
        ...

    def files(self) -> Sequence[Path]:
        """Where those that the cloud has told are kept; the head gets them, too."""
        ...


class _Answer(msgspec.Struct, frozen=True):
    """Prices of a topic by name, and when they were told, as unix time."""

    at: float
    prices: dict[str, float]


_DECODER = msgspec.json.Decoder(dict[str, _Answer])


class Prices:
    """The prices of one cloud and market. Thread-safe.

    Args:
        file: where they are kept; several clusters may have it in common.
        ask: the prices of a topic, by name.
        fresh_s: after this time they are asked for again.
    """

    def __init__(
        self, file: Path, ask: Callable[[str], Mapping[str, float]], fresh_s: float = _DAY_S
    ) -> None:
        self.file = file
        self._ask = ask
        self._fresh_s = fresh_s
        self._changed = threading.Condition()
        self._known: dict[str, _Answer] | None = None
        self._asking: set[str] = set()
        self._silent_until = 0.0
        self._patience_s = _PATIENCE_S
        self._oldest: dict[str, float] = {}  # topic -> when what was given out had been told
        self._lacks = False

    def of(self, topic: str) -> Mapping[str, float]:
        """The prices of a topic by name, per hour; empty: nobody knows."""
        with self._changed:
            known = self._read().get(topic)
            if known is None or time.time() - known.at > self._fresh_s:
                self._begin(topic)
            if known is None:
                began = time.monotonic()
                self._changed.wait_for(lambda: topic not in self._asking, self._patience_s)
                self._patience_s = max(0.0, self._patience_s - (time.monotonic() - began))
                known = self._read().get(topic)
            if known is None or not known.prices:
                self._lacks = True
                return {}
            self._oldest[topic] = known.at
            return known.prices

    def source(self, told_by: str, table: str) -> str:
        """Where the prices that were given out came from, and their day.

        Args:
            told_by: who is asked for them.
            table: what serves in their place.
        """
        with self._changed:
            if not self._oldest:
                return table
            at = min(self._oldest.values())
            told = f"{told_by} of {datetime.fromtimestamp(at, UTC):%Y-%m-%d}{age(time.time() - at)}"
            return f"{told}; what it does not say: {table}" if self._lacks else told

    # -- inside

    def _read(self) -> dict[str, _Answer]:
        if self._known is None:
            try:
                self._known = _DECODER.decode(self.file.read_bytes())
            except (OSError, msgspec.MsgspecError):  # there is none, or none that we wrote
                self._known = {}
        return self._known

    def _begin(self, topic: str) -> None:
        if topic in self._asking or time.monotonic() < self._silent_until:
            return
        self._asking.add(topic)
        threading.Thread(target=self._learn, args=(topic,), name="prices", daemon=True).start()

    def _learn(self, topic: str) -> None:
        told: Mapping[str, float] | None = None
        try:
            told = self._ask(topic)
        except (
            ProviderError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # or in a form that we do not know
            log.info("the prices of %s are not told: %r", topic, error)
        finally:
            with self._changed:
                if told is None:
                    self._silent_until = time.monotonic() + _AGAIN_S
                else:
                    self._keep(topic, _Answer(time.time(), dict(told)))
                self._asking.discard(topic)
                self._changed.notify_all()

    def _keep(self, topic: str, answer: _Answer) -> None:
        ours = self._read()
        self._known = None  # other processes may have learnt more
        self._known = {**ours, **self._read(), topic: answer}
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace(str(self.file), msgspec.json.encode(self._known))
        except OSError as error:
            log.info("the prices cannot be kept in %s: %s", self.file, error)


def age(seconds: float) -> str:
    """How old prices are, to follow their day; "" for those of today. Pure."""
    days = int(seconds // _DAY_S)
    return f" ({days} day{'s' if days > 1 else ''} old)" if days > 0 else ""
