"""Idle workers whose end somebody would miss: others hold references to what their tasks made, or tasks that
they began still run elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from runtime._core.workers import Worker, WorkerState, WorkerTable
from runtime._transport.channel import CallError
from runtime._wire.messages.node import MayEnd

ASK_AGAIN_S = 3.0
ANSWER_S = 5.0


class _Answer(msgspec.Struct):
    """What a worker said of itself. `idle_since`: of the idleness it was asked in; a later one is asked anew."""

    idle_since: float
    asked_s: float
    is_needed: bool = True  # until it says otherwise

    def is_stale(self, worker: Worker, now: float) -> bool:
        """Whether to ask it again later."""
        return self.idle_since != worker.idle_since or (self.is_needed and now - self.asked_s >= ASK_AGAIN_S)


class OwningWorkers:
    """Asks idle workers whether they are needed. Only those that have run something own anything, and one that is
    not needed stays so until it runs something again.

    Args:
        table: the node's workers.
        on_change: called when an answer has come.
    """

    def __init__(self, table: WorkerTable, on_change: Callable[[], None]) -> None:
        self._table = table
        self._on_change = on_change
        self._answers: dict[Worker, _Answer] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Ends what is being asked."""
        for task in self._asking:
            task.cancel()

    def any(self) -> bool:
        """Whether some idle worker is needed, or has not said yet that it is not. Asks those that should be asked."""
        idle = [worker for worker in self._table if worker.used and worker.state is WorkerState.IDLE]
        known, self._answers = self._answers, {}
        now = asyncio.get_running_loop().time()
        for worker in idle:
            answer = known.get(worker)
            if answer is None or answer.is_stale(worker, now):
                answer = self._ask(worker, now)
            self._answers[worker] = answer
        return any(answer.is_needed for answer in self._answers.values())

    def _ask(self, worker: Worker, now: float) -> _Answer:
        answer = _Answer(worker.idle_since, now)
        task = asyncio.get_running_loop().create_task(self._listen(worker, answer))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return answer

    async def _listen(self, worker: Worker, answer: _Answer) -> None:
        if worker.channel is None:
            return
        try:
            await worker.channel.call(MayEnd(), ANSWER_S)
        except CallError:
            return  # it is needed, or does not answer, and is asked again
        answer.is_needed = False
        self._on_change()
