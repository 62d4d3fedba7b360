"""Text from tokens, one at a time, up to a stop sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_INCOMPLETE = "\ufffd"


class TextStream:
    """The text of one answer. It gives out only what is certain: no half characters, no beginnings of stop sequences.

    Args:
        decode: the text of tokens.
        stops: sequences that end the text; they are no part of it.
    """

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = tuple(stop for stop in stops if stop)
        self._tokens: list[int] = []
        # Tokens of one word may have another text than each alone, so some that were read come along.
        self._begin = 0
        self._read = 0
        self._held = ""
        self.stopped: str | None = None

    def push(self, token: int) -> str:
        """The text that is certain with one more token; "" if there is none yet."""
        self._tokens.append(token)
        return self._given(self._new(complete=True))

    def finish(self) -> str:
        """The text that is left when no more tokens come."""
        text = self._given(self._new(complete=False))
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _new(self, complete: bool) -> str:
        before = self._decode(self._tokens[self._begin : self._read])
        after = self._decode(self._tokens[self._begin :])
        if len(after) <= len(before) or (complete and after.endswith(_INCOMPLETE)):
            return ""
        self._begin, self._read = self._read, len(self._tokens)
        return after[len(before) :]

    def _given(self, new: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + new
        found = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            place, self.stopped = min(found)
            self._held = ""
            return text[:place]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text may be the beginning of the stop sequence."""
    return next(
        (size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0
    )
