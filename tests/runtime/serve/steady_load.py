"""Clients that ask one application over HTTP, again and again, and note which requests fail."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

import httpx

RECONNECT_S = 60.0
"""How long nobody may listen before a client gives up."""
REQUEST_S = 60.0


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the application said: who it is, by process and version."""

    version: int
    pid: int


class SteadyLoad:
    """From entry to exit: each client sends its next request when the last one is answered, on a kept connection.

    A connection that is refused has carried no request: the client tries again for a while. Anything else but the
    right answer with status 200 is a failed request. So at most one request of each client is in flight.

    Args:
        url: of the application, which answers {"number": the query's, "version": int, "pid": int}.
        clients: how many.
    """

    def __init__(self, url: str, clients: int) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._failed: list[str] = []
        self._answers: Counter[Answer] = Counter()
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(first,)) for first in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    @property
    def failed(self) -> list[str]:
        """The failed requests so far: what went wrong with each."""
        with self._lock:
            return list(self._failed)

    def answers(self) -> Counter[Answer]:
        """How often who has answered so far."""
        with self._lock:
            return self._answers.copy()

    def since(self, before: Counter[Answer]) -> Counter[Answer]:
        """How often who has answered after `before` was taken."""
        return self.answers() - before

    def _ask(self, number: int) -> None:
        with httpx.Client(timeout=REQUEST_S) as client:
            refused_since: float | None = None
            while not self._end.is_set():
                number += len(self._threads)
                try:
                    self._note(client.get(self._url, params={"number": number}), number)
                    refused_since = None
                except httpx.ConnectError as error:
                    now = time.monotonic()
                    refused_since = now if refused_since is None else refused_since
                    if now - refused_since > RECONNECT_S:
                        self._fail(f"nobody has listened for {RECONNECT_S:g} s: {error}")
                        return
                    self._end.wait(0.02)
                except httpx.TransportError as error:
                    self._fail(f"request {number}: {type(error).__name__}: {error}")

    def _note(self, response: httpx.Response, number: int) -> None:
        if response.status_code != 200:
            self._fail(f"request {number}: status {response.status_code}: {response.text[:200]}")
            return
        said = response.json()
        if said["number"] != number:
            self._fail(f"request {number}: the answer to {said['number']}")
            return
        with self._lock:
            self._answers[Answer(said["version"], said["pid"])] += 1

    def _fail(self, what: str) -> None:
        with self._lock:
            self._failed.append(what)
