"""Random tasks, workers and deaths in random orders: every task gets one result, nothing is left, and none is called
twice: a task without retries begins at most once, and no attempt of another begins twice unless a worker died before
its owner could know that it had begun.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any

import pytest

from runtime._core.tasks import TaskState
from runtime._ownership.records import INLINE_ERROR, Entry
from runtime._ownership.tasks import Task
from runtime._wire.messages.node import LeaseDemand, LeaseLost, LeaseRecall, LeaseReturn
from runtime._wire.messages.worker import Cancel, Push, Returned, TakeBack, Value
from tests.runtime._ownership.fakes import WorkerLink
from tests.runtime._ownership.submitting import Owner

STEPS = 150
SEEDS = 150
ERROR = Value(INLINE_ERROR, b"raised")


class Worker:
    """A worker with a queue of pushes. `said`: its answers, which have not arrived yet."""

    def __init__(self, link: WorkerLink, lease_id: bytes) -> None:
        self.link = link
        self.lease_id = lease_id
        self.queue: deque[Push] = deque()
        self.said: deque[tuple[str, Any]] = deque()


class World:
    """One owner, its agent and its workers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.owner = Owner()
        self.workers: list[Worker] = []
        self.demands: dict[bytes, LeaseDemand] = {}
        self.tasks: list[Task] = []
        self.kept: list[Entry] = []
        self.began: Counter[tuple[bytes, int]] = Counter()
        self.unknown: set[tuple[bytes, int]] = set()
        """Attempts that died with their worker and could run again."""
        self.answered: set[bytes] = set()
        self.called: Counter[bytes] = Counter()
        self.made = 0

    def run(self) -> None:
        choices = [self.submit] * 3 + [self.agent] * 3 + [self.work] * 6 + [self.arrive] * 6
        choices += [self.tick, self.tick, self.cancel, self.recall, self.kill, self.drop]
        for _ in range(STEPS):
            self.rng.choice(choices)()
        self.end()

    # ------------------------------------------------------------ the program

    def submit(self) -> None:
        arguments = self.rng.sample(self.kept, min(len(self.kept), self.rng.randrange(3)))
        retries = self.rng.choice((0, 0, 1, 3))
        wants = bool(self.rng.randrange(2))
        task = self.owner.submit(*arguments, retries=retries, retry_exceptions=wants)
        self.tasks.append(task)
        [entry] = task.entries
        self.kept.append(entry)
        task_id = task.push.task_id
        self.owner.objects.call_when_ready(entry, lambda: self.called.update([task_id]))

    def cancel(self) -> None:
        if self.tasks:
            self.owner.tasks.cancel(self.rng.choice(self.tasks), False, False)

    def drop(self) -> None:
        if self.kept:
            entry = self.kept.pop(self.rng.randrange(len(self.kept)))
            self.owner.process.drop(entry)
            self.owner.process.drain()

    # ------------------------------------------------------------ the agent

    def hear(self) -> None:
        """What the owner has said to its agent."""
        for message in self.owner.agent.sent:
            if isinstance(message, LeaseDemand):
                self.demands[message.class_key] = message
            elif isinstance(message, LeaseReturn):
                self.workers = [worker for worker in self.workers if worker.lease_id != message.lease_id]
        self.owner.agent.sent.clear()

    def agent(self) -> None:
        self.hear()
        wanted = [demand for demand in self.demands.values() if demand.count]
        if not wanted or len(self.workers) >= 4:
            return
        demand = self.rng.choice(wanted)
        self.demands[demand.class_key] = LeaseDemand(demand.class_key, demand.count - 1, demand.request)
        task = next((task for task in self.tasks if task.pool.key == demand.class_key), None)
        if task is not None:
            self.made += 1
            link = self.owner.grant(f"w{self.made}", task)
            self.workers.append(Worker(link, f"w{self.made}".encode().ljust(16, b".")))
            self.hear()

    def recall(self) -> None:
        if self.workers:
            self.owner.tasks.on_recall(LeaseRecall(self.rng.choice(self.workers).lease_id))
            self.hear()

    def tick(self) -> None:
        self.owner.now += self.rng.choice((0.001, 0.02, 0.06, 2.0))
        self.owner.tasks.tick(self.owner.now)
        self.hear()

    # ------------------------------------------------------------ the workers

    def take(self, worker: Worker) -> None:
        """A worker reads what it was sent."""
        link = worker.link
        while link.sent:
            message = link.sent.popleft()
            if isinstance(message, Push):
                worker.queue.append(message)
            elif isinstance(message, TakeBack):
                back = []
                while len(worker.queue) > 1 and len(back) < message.count:
                    back.append(worker.queue.pop().task_id)
                worker.said.append(("returned", Returned(back[::-1])))
            elif isinstance(message, Cancel):
                for push in list(worker.queue):
                    if push.task_id == message.task_id:
                        worker.queue.remove(push)
                        worker.said.append(("failed", push))

    def work(self) -> None:
        if not self.workers:
            return
        worker = self.rng.choice(self.workers)
        self.take(worker)
        if worker.queue:
            push = worker.queue.popleft()
            self.begin(push)
            assert push.task_id not in self.answered, "a task ran again after its answer"
            worker.said.append((self.rng.choice(("done", "done", "failed")), push))

    def begin(self, push: Push) -> None:
        self.began[push.task_id, push.attempt] += 1

    def arrive(self) -> None:
        """An answer reaches the owner."""
        talking = [worker for worker in self.workers if worker.said]
        if not talking:
            return
        worker = self.rng.choice(talking)
        kind, what = worker.said.popleft()
        if kind == "returned":
            self.owner.tasks.on_returned(worker.link, what, self.owner.now)
        elif kind == "done":
            self.answered.add(what.task_id)
            self.owner.done(worker.link, what, seconds=1e-4)
        else:
            self.owner.done(worker.link, what, ERROR, failed=True, retry=True)
        self.hear()

    def kill(self) -> None:
        """A worker dies with its queue, and with what it said last."""
        if not self.workers:
            return
        worker = self.rng.choice(self.workers)
        lost = LeaseLost(worker.lease_id, b"", "killed", out_of_memory=self.rng.random() < 0.2)
        first, agent_speaks = self.rng.random() < 0.5, self.rng.random() < 0.7
        if first and agent_speaks:
            self.owner.tasks.on_lost(lost, self.owner.now)
        self.workers.remove(worker)
        worker.link.closed = True
        begun = [what for kind, what in worker.said if kind != "returned"]
        if worker.queue and self.rng.random() < 0.5:
            self.begin(worker.queue[0])
            begun.append(worker.queue[0])
        self.unknown.update((push.task_id, push.attempt) for push in begun)
        self.owner.tasks.link_lost(worker.link, self.owner.now)
        if not first and agent_speaks:
            self.owner.tasks.on_lost(lost, self.owner.now)
        self.hear()

    # ------------------------------------------------------------ the end

    def end(self) -> None:
        for _ in range(10_000):
            if all(task.state is TaskState.FINISHED for task in self.tasks):
                break
            for step in (self.agent, self.work, self.arrive, self.tick):
                step()
        else:
            raise AssertionError([(task.state, task.lease) for task in self.tasks])
        for task in self.tasks:
            task_id = task.push.task_id
            assert self.called[task_id] == 1, "a completion was lost, or came twice"
            if not task.max_retries:
                assert self.began[task_id, 0] <= 1
                assert not task.push.attempt
        for key, count in self.began.items():
            assert count == 1 or key in self.unknown, f"attempt {key} began {count} times"
        assert self.owner.outcomes.pending == {}
        while self.kept:
            self.drop()
        assert self.owner.entries == {}, "objects are left"
        for _ in range(3):
            self.owner.now += 10
            self.owner.tasks.tick(self.owner.now)
        self.hear()
        assert self.owner.tasks.leases == {}
        assert not any(demand.count for demand in self.demands.values())
        assert not self.owner.tasks.tick(self.owner.now)


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, SEEDS, 50)], ids=str)
def test_nothing_runs_twice_is_lost_or_left(seeds: range) -> None:
    for seed in seeds:
        try:
            World(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
