"""Calls of one actor: in order, across its restarts, each answered once."""

from __future__ import annotations

import random
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._core.tasks import TaskState
from runtime._ownership.calls import Actor, Call, Calls
from runtime._ownership.failures import (
    ActorDied,
    ActorUnavailable,
    ArgumentFailed,
    Cancelled,
    CannotSend,
    NotCreated,
    StaleHandle,
)
from runtime._ownership.records import INLINE_ERROR, STORED, Entry
from runtime._wire.messages.base import ErrorKind, ErrorReply
from runtime._wire.messages.control import KillActor, WatchActor
from runtime._wire.messages.worker import Cancel, Push, ReleaseHold, Value
from tests.runtime._ownership.fakes import PLAIN, WorkerLink, address_of, object_name
from tests.runtime._ownership.submitting import RESULT, Owner

ACTOR = b"\x80" + b"a" * 15
ERROR = Value(INLINE_ERROR, b"raised")
STORED_RESULT = Value(STORED, b"", (), (), (b"n" * 28,), 10)


class Caller(Owner):
    """A process with the handle of one actor."""

    def __init__(self, ordered: bool = True) -> None:
        super().__init__()
        self.calls = Calls(self.process.address, self.objects, self.outcomes, self.process)
        self.handle = self.objects.own(object_name("handle"), 1)
        self.actor: Actor = self.calls.actor(ACTOR, self.handle, ordered)
        self.version = 0

    def call(
        self, *arguments: Entry, retries: int = 0, wanted: bool = False, parent: bytes = b"", results: int = 1
    ) -> Call:
        self._made += 1
        self.actor.sequence += 1
        push = Push(self._made.to_bytes(8, "big") + ACTOR, b"", "m", None, [], results, sequence=self._made)
        waiting = TaskState.WAITING_FOR_ARGUMENTS
        call = Call(
            self.pack(*arguments),
            push,
            retries,
            retries,
            wanted,
            self.now,
            parent,
            waiting,
            actor=self.actor,
            handle=self.actor.handle,
        )
        self.promise(call)
        self.calls.submit(call)
        return call

    def news(self, state: str, name: str = "") -> WorkerLink:
        """The control store answers the question that is under way."""
        self.version += 1
        link = WorkerLink(address_of(name))
        if name:
            self.process.workers[link.peer.worker_id] = link
        info: Any = SimpleNamespace(
            version=self.version, state=state, address=link.peer if name else None, actor_id=ACTOR
        )
        if self.agent.calls:
            self.agent.calls.pop(0)(info)
        else:
            self.calls.learn(self.actor, info)
        return link


@pytest.fixture
def caller() -> Caller:
    return Caller()


def pushed(link: WorkerLink) -> list[int]:
    return [push.sequence for push in link.take(Push)]


def test_what_a_failed_attempt_gave_is_let_go_of(caller: Caller) -> None:
    call = caller.call(retries=1, wanted=True, results=2)
    link = caller.news("ALIVE", "w")
    [push] = link.take(Push)
    stored = Value(STORED, b"", (), ((object_name("inside"), link.peer),), (b"there",), 100)
    error = Value(INLINE_ERROR, b"raised")
    caller.done(link, push, stored, error, failed=True, retry=True)
    assert link.take(ReleaseHold) == [ReleaseHold(push.task_id, 0)]
    [push] = link.take(Push)
    caller.done(link, push, RESULT, RESULT)
    assert caller.process.dropped == [(call.entries[0].object_id, [b"there"], True)]


def test_calls_wait_for_the_address_and_go_in_order(caller: Caller) -> None:
    calls = [caller.call() for _ in range(3)]
    assert len(caller.agent.take(WatchActor)) == 1  # asked once
    link = caller.news("ALIVE", "w")
    assert pushed(link) == [1, 2, 3]
    for call in calls:
        caller.done(link, call.push)
    assert [call.entries[0].value for call in calls] == [RESULT] * 3
    caller.drop(*calls)
    assert list(caller.entries) == [caller.handle.object_id]
    assert caller.handle.holds == 1


@pytest.mark.parametrize(("ordered", "first"), [(True, []), (False, [2])])
def test_only_concurrent_actors_overtake_calls_that_wait(ordered: bool, first: list[int]) -> None:
    caller = Caller(ordered)
    link_news = caller.call  # the watch begins with the first call
    argument = caller.objects.own(object_name("x"), 1)
    link_news(argument)
    caller.call()
    link = caller.news("ALIVE", "w")
    assert pushed(link) == first
    caller.objects.set_value(argument, PLAIN)
    assert pushed(link) == ([1, 2] if ordered else [1])


def test_a_restart_repeats_calls_with_retries_and_fails_the_others(caller: Caller) -> None:
    again, never = caller.call(retries=1), caller.call()
    link = caller.news("ALIVE", "w")
    pushed(link)
    caller.calls.link_lost(link)
    caller.news("RESTARTING")
    assert caller.failures() == [
        ActorUnavailable(ACTOR, "the actor was restarted: its process died while it ran this call")
    ]
    assert never.state is TaskState.FINISHED
    refused = caller.call()
    assert refused.state is TaskState.FINISHED
    link = caller.news("ALIVE", "w2")
    assert [(push.sequence, push.attempt) for push in link.take(Push)] == [(1, 1)]
    caller.done(link, again.push)
    assert again.entries[0].value == RESULT


def test_a_dead_actor_fails_everything(caller: Caller) -> None:
    running, queued = caller.call(retries=-1), caller.call(caller.objects.own(object_name("x"), 1))
    link = caller.news("ALIVE", "w")
    caller.calls.link_lost(link)
    caller.news("DEAD")
    late = caller.call()
    assert [type(failure) for failure in caller.failures()] == [ActorDied] * 3
    assert {call.state for call in (running, queued, late)} == {TaskState.FINISHED}
    assert caller.handle.holds == 1


def test_user_errors_are_retried_in_place(caller: Caller) -> None:
    call = caller.call(retries=1, wanted=True)
    link = caller.news("ALIVE", "w")
    pushed(link)
    caller.done(link, call.push, ERROR, failed=True)
    assert [push.attempt for push in link.take(Push)] == [1]
    caller.done(link, call.push, ERROR, failed=True)
    assert call.entries[0].value == ERROR


def test_a_failed_attempt_that_gave_some_results_releases_what_they_nest(caller: Caller) -> None:
    call = caller.call(retries=1, wanted=True, results=2)
    link = caller.news("ALIVE", "w")
    pushed(link)
    partial = Value(0, b"", (), ((object_name("inner"), address_of("other")),))
    caller.done(link, call.push, partial, ERROR, failed=True)
    assert link.take(ReleaseHold) == [ReleaseHold(call.push.task_id, 0)]
    caller.done(link, call.push, RESULT, RESULT)
    assert link.take(ReleaseHold) == []
    assert call.entries[0].value == RESULT


def test_bad_arguments_and_messages_fail_their_call_alone(caller: Caller) -> None:
    link = WorkerLink(address_of("w"))
    bad = caller.objects.own(object_name("bad"), 1)
    bad.value = ERROR
    caller.call(bad)
    caller.call()
    link = caller.news("ALIVE", "w")
    assert caller.failures() == [ArgumentFailed(ERROR.data, "m")]
    assert pushed(link) == [2]
    link.refuses = lambda message: isinstance(message, Push)
    caller.call()
    assert caller.failures() == [CannotSend("call of m", "no such field")]


def test_a_call_that_becomes_ready_while_others_are_sent_is_sent() -> None:
    caller = Caller(ordered=False)
    bad, late = (caller.objects.own(object_name(name), 1) for name in ("bad", "late"))
    waits = caller.call(late)
    fails = caller.call(bad)
    caller.objects.call_when_ready(fails.entries[0], lambda: caller.objects.set_value(late, PLAIN))
    caller.objects.set_value(bad, ERROR)
    link = caller.news("ALIVE", "w")
    assert pushed(link) == [waits.push.sequence]


def test_a_call_that_is_cancelled_while_others_are_sent_is_not_sent() -> None:
    caller = Caller(ordered=False)
    bad, late = (caller.objects.own(object_name(name), 1) for name in ("bad", "late"))
    waits = caller.call(late)
    fails = caller.call(bad)
    caller.objects.call_when_ready(fails.entries[0], lambda: caller.calls.cancel(waits, False, False))
    caller.objects.set_value(bad, ERROR)
    link = caller.news("ALIVE", "w")
    caller.objects.set_value(late, PLAIN)
    assert pushed(link) == []
    assert waits.state is TaskState.FINISHED
    assert not caller.actor.calls


def test_nothing_goes_into_a_closed_link(caller: Caller) -> None:
    link = caller.news("ALIVE", "w")
    link.closed = True
    call = caller.call()
    assert call.state is TaskState.QUEUED
    caller.calls.link_lost(link)
    assert pushed(caller.news("ALIVE", "w2")) == [call.push.sequence]


def test_a_congested_link_gets_no_more_until_it_has_room(caller: Caller) -> None:
    caller.call()
    link = caller.news("ALIVE", "w")
    pushed(link)
    link.congested = True
    caller.call()
    assert pushed(link) == []
    link.congested = False
    assert link.on_room is not None
    link.on_room(link)
    assert pushed(link) == [2]


def test_cancelling(caller: Caller) -> None:
    running = caller.call()
    link = caller.news("ALIVE", "w")
    waiting = caller.call(caller.objects.own(object_name("x"), 1))
    for call in (running, waiting):
        caller.calls.cancel(call, False, True)
        caller.calls.cancel(call, False, True)
    assert caller.failures() == [Cancelled(waiting.push.task_id)]
    assert link.take(Cancel) == [Cancel(running.push.task_id, False, True)]
    caller.done(link, running.push, ERROR, failed=True)
    assert caller.outcomes.pending == {}


@pytest.mark.parametrize("news", ["RESTARTING", "DEAD"])
def test_a_cancelled_call_is_cancelled_when_its_process_dies(caller: Caller, news: str) -> None:
    call = caller.call(retries=-1)
    link = caller.news("ALIVE", "w")
    pushed(link)
    caller.calls.cancel(call, False, True)
    caller.calls.link_lost(link)
    caller.news(news)
    assert caller.failures() == [Cancelled(call.push.task_id)]
    assert caller.outcomes.pending == {}


def test_children_that_were_not_sent_are_cancelled(caller: Caller) -> None:
    argument = caller.objects.own(object_name("x"), 1)
    children = [caller.call(argument, parent=b"p"), caller.call(parent=b"p")]
    other = caller.call(parent=b"q")
    caller.outcomes.cancel_children(b"p", False)
    assert caller.failures() == [Cancelled(child.push.task_id) for child in reversed(children)]
    link = caller.news("ALIVE", "w")
    assert pushed(link) == [other.push.sequence]
    assert list(caller.outcomes.pending) == [other.push.task_id]


def test_no_child_begins_because_one_before_it_was_cancelled(caller: Caller) -> None:
    caller.call()
    link = caller.news("ALIVE", "w")
    pushed(link)
    caller.call(caller.objects.own(object_name("x"), 1), parent=b"p")
    caller.call(parent=b"p")  # ready, and in line behind the other one
    caller.outcomes.cancel_children(b"p", False)
    assert pushed(link) == []
    assert len(caller.failures()) == 2


def test_a_call_is_cancelled_while_its_process_is_out_of_reach(caller: Caller) -> None:
    call = caller.call(retries=-1, parent=b"p")
    link = caller.news("ALIVE", "w")
    pushed(link)
    caller.calls.link_lost(link)
    caller.outcomes.cancel_children(b"p", False)
    assert caller.failures() == [Cancelled(call.push.task_id)]
    caller.news("RESTARTING")
    assert pushed(caller.news("ALIVE", "w2")) == []
    assert caller.outcomes.pending == {}


def test_a_call_that_waits_to_run_again_is_cancelled(caller: Caller) -> None:
    argument = caller.objects.own(object_name("x"), 1)
    argument.value = PLAIN
    call = caller.call(argument, retries=1, parent=b"p")
    link = caller.news("ALIVE", "w")
    pushed(link)
    caller.done(link, call.push, STORED_RESULT)
    argument.value = None
    assert caller.lineage.rebuild(call.entries[0]) is None
    caller.outcomes.cancel_children(b"p", False)
    assert caller.failures() == [Cancelled(call.push.task_id)]
    caller.objects.set_value(argument, PLAIN)
    assert pushed(link) == []
    assert caller.outcomes.pending == {}


def test_the_late_answer_of_a_process_that_was_given_up_does_not_count(caller: Caller) -> None:
    call = caller.call(retries=1)
    old = caller.news("ALIVE", "w")
    pushed(old)
    caller.calls.interrupt(caller.actor)
    caller.news("RESTARTING")
    caller.done(old, call.push, ERROR, failed=True)
    assert call.state is TaskState.QUEUED
    link = caller.news("ALIVE", "w2")
    [push] = link.take(Push)
    caller.done(link, push)
    assert call.entries[0].value == RESULT


def test_an_unknown_actor_is_dead_unless_it_is_yet_to_be_registered(caller: Caller) -> None:
    gone = ErrorReply(ErrorKind.NOT_FOUND, "no such actor")
    call = caller.call()
    caller.agent.calls.pop(0)(gone)
    assert call.state is not TaskState.FINISHED
    caller.objects.set_value(caller.handle, PLAIN)  # it is registered
    caller.agent.calls.pop(0)(gone)
    assert caller.failures() == [NotCreated("no such actor")]
    assert call.state is TaskState.FINISHED


def test_an_actor_made_here_ends_with_its_last_handle(caller: Caller) -> None:
    kept = caller.objects.own(object_name("kept"), 1)
    handle = caller.objects.own(object_name("new"), 1)
    actor = caller.calls.create(b"\x80" + b"b" * 15, True, handle, [kept])
    caller.calls.watch(actor)
    assert caller.agent.take(WatchActor) == []  # not before it is registered
    info: Any = SimpleNamespace(version=0, state="PENDING", address=None, actor_id=actor.actor_id)
    caller.calls.registered(actor, info)
    assert len(caller.agent.take(WatchActor)) == 1
    caller.objects.release(handle)
    assert caller.agent.take(KillActor) == [KillActor(actor.actor_id, True, True)]
    assert kept.object_id not in caller.entries
    assert actor.released


@pytest.mark.parametrize("named", [False, True])
def test_the_last_handle_of_a_dead_actor_frees_its_name(caller: Caller, named: bool) -> None:
    handle = caller.objects.own(object_name("new"), 1)
    actor = caller.calls.create(b"\x80" + b"b" * 15, True, handle, [], named)
    info: Any = SimpleNamespace(version=0, state="DEAD", address=None, actor_id=actor.actor_id)
    caller.calls.registered(actor, info)
    caller.objects.release(handle)
    assert caller.agent.take(KillActor) == ([KillActor(actor.actor_id, True, True)] if named else [])


def test_handles_of_an_ended_session_are_stale(caller: Caller) -> None:
    caller.calls.close()
    caller.call()
    assert caller.failures() == [StaleHandle(ACTOR)]


@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in (0, 100)], ids=str)
def test_no_interleaving_loses_or_doubles_a_call(seeds: range) -> None:
    for seed in seeds:
        try:
            _run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def _run(seed: int) -> None:
    """Random calls of an actor that dies and comes back."""
    rng = random.Random(seed)
    caller = Caller(ordered=rng.random() < 0.5)
    calls: list[Call] = []
    completed: Counter[bytes] = Counter()
    began: Counter[bytes] = Counter()
    link: WorkerLink | None = None
    queue: deque[Push] = deque()
    names = 0

    def work() -> None:
        if link is not None:
            queue.extend(link.take(Push))
            for cancel in link.take(Cancel):
                for push in [push for push in queue if push.task_id == cancel.task_id]:
                    queue.remove(push)
                    caller.done(link, push, ERROR, failed=True)
            if queue:
                push = queue.popleft()
                began[push.task_id] += 1
                failed = rng.random() < 0.3
                caller.done(link, push, ERROR if failed else RESULT, failed=failed)

    def submit() -> None:
        known = [call.entries[0] for call in calls[-2:] if rng.random() < 0.3]
        call = caller.call(*known, retries=rng.choice((0, 1, -1)), wanted=rng.random() < 0.2)
        calls.append(call)
        caller.objects.call_when_ready(call.entries[0], lambda: completed.update([call.push.task_id]))

    def alive() -> None:
        nonlocal link, names
        if link is None and caller.agent.calls:
            names += 1
            link = caller.news("ALIVE", f"w{names}")

    def die() -> None:
        nonlocal link
        if link is not None:
            dead, link = link, None
            dead.closed = True
            queue.clear()
            caller.calls.link_lost(dead)
            if rng.random() < 0.5 and caller.agent.calls:
                caller.news("RESTARTING")

    def cancel() -> None:
        if calls:
            caller.calls.cancel(rng.choice(calls), False, False)

    for _ in range(80):
        rng.choice([submit, submit, work, work, work, alive, alive, die, cancel])()
    for _ in range(2000):
        alive()
        work()
        if all(call.state is TaskState.FINISHED for call in calls):
            break
    assert all(completed[call.push.task_id] == 1 for call in calls), "a completion was lost, or came twice"
    for call in calls:
        if not call.max_retries:
            assert began[call.push.task_id] <= 1, "a call without retries began twice"
    assert caller.outcomes.pending == {}
    caller.drop(*calls)
    assert list(caller.entries) == [caller.handle.object_id]
    assert caller.handle.holds == 1
