"""The controller of one run of training: starts the workers, runs the training function on them, commits their reports,
and starts again after failures. Pure.

What it has done outside of its own state is the work of a `Keeper`, in threads of the controller's process: it opens
the run's folder, commits reports, and closes the run. Calls of the workers' methods are named by attempt and rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol

import msgspec

from runtime._controllers.controller import (
    ActorUp,
    Begin,
    Call,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Item,
    Key,
    Overdue,
    Perform,
    Reply,
    Requested,
    ResultOf,
    Sleep,
    Stop,
    Take,
    TimerFired,
    Wait,
)
from runtime._controllers.members import Group, GroupSpec, MemberState
from runtime._controllers.policies import AllOrNone
from runtime._core.fsm import Edge, Machine
from runtime.exceptions import RayActorError

from .failure_policy import Decision, FailurePolicy
from .ranks import Place, placed
from .records import Answered, Asked, Committed, Message, Reported, Returned, Uploaded, Wanted, decode
from .reports import Complete, Ledger


class State(Enum):
    INITIALIZING = "INITIALIZING"
    SCHEDULING = "SCHEDULING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    RESCHEDULING = "RESCHEDULING"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    FINISHED = "FINISHED"
    ERRORED = "ERRORED"
    ABORTED = "ABORTED"


class Input(Enum):
    OPENED = "the run's folder is open"
    STARTED = "all workers run the training function"
    WARM_RESTART = "workers failed, and the others go on"
    COLD_RESTART = "workers failed, and all are started anew"
    OVER = "the training function has ended on all workers, or the run is given up"
    CLOSED = "everything is committed, and there is no error"
    CLOSED_WITH_ERROR = "what could be committed is, and there is an error"
    ABORT = "somebody gave the run up"


_I, _S, _R, _W = State.INITIALIZING, State.SCHEDULING, State.RUNNING, State.RESTARTING
_C, _D = State.RESCHEDULING, State.SHUTTING_DOWN

TRANSITIONS: Final[Mapping[tuple[State, Input], Edge[State]]] = {
    (_I, Input.OPENED): Edge(_S, "the run's folder is open; the workers are created"),
    (_I, Input.OVER): Edge(_D, "the run's folder cannot be used"),
    (_S, Input.STARTED): Edge(_R, "all workers are up"),
    (_S, Input.WARM_RESTART): Edge(_W, "a worker failed before all ran the training function"),
    (_S, Input.COLD_RESTART): Edge(_C, "a worker failed before all ran the training function"),
    (_S, Input.OVER): Edge(_D, "the workers cannot be started"),
    (_R, Input.WARM_RESTART): Edge(_W, "a worker failed; the others leave the training function"),
    (_R, Input.COLD_RESTART): Edge(_C, "a worker failed at once after a restart; all are started anew"),
    (_R, Input.OVER): Edge(_D, "the training function has ended, or a failure is one too many"),
    (_W, Input.STARTED): Edge(_R, "the survivors have left, and those who died are replaced"),
    (_W, Input.WARM_RESTART): Edge(_W, "one more worker failed before all ran the training function"),
    (_W, Input.COLD_RESTART): Edge(_C, "the restart failed; all workers are started anew"),
    (_W, Input.OVER): Edge(_D, "a failure is one too many"),
    (_C, Input.STARTED): Edge(_R, "all new workers are up"),
    (_C, Input.WARM_RESTART): Edge(_W, "a new worker failed before all ran the training function"),
    (_C, Input.COLD_RESTART): Edge(_C, "a new worker failed before all ran the training function"),
    (_C, Input.OVER): Edge(_D, "the new workers cannot be started, or a failure is one too many"),
    (_D, Input.CLOSED): Edge(State.FINISHED, "all reports are committed"),
    (_D, Input.CLOSED_WITH_ERROR): Edge(State.ERRORED, "it ends with an error"),
    **{
        (state, Input.ABORT): Edge(State.ABORTED, "somebody gave it up") for state in (_I, _S, _R, _W, _C, _D)
    },
}

_WITH_WORKERS = (_S, _R, _W, _C)

TAKEN = 4
"""Batches of records that are on their way from a worker."""
LEAVE_S = 60.0
"""How long the workers may take to leave the training function; then their processes are ended."""
STACKS_S = 5.0
"""How long the stacks of the ranks are waited for, when they are wanted for an error."""


class Opened(msgspec.Struct, frozen=True):
    """How a run's folder was found. `checkpoint`: the latest, pickled; b"": none. `failures`: those counted so far."""

    checkpoint: bytes = b""
    failures: int = 0


class Kept(msgspec.Struct, frozen=True):
    """What has become of reports. `checkpoint`: see `Opened`."""

    checkpoint: bytes = b""


class Keeper(Protocol):
    """What a run keeps outside of its controller. Its methods are called one at a time; what they raise ends it."""

    def open(self) -> Opened:
        """Opens the run's folder and removes what an earlier controller has not committed."""

    def keep(self, reports: Sequence[Complete]) -> Kept:
        """Commits reports: their checkpoints and metrics, and calls the user's callbacks."""

    def failed(self, failures: int, errors: Mapping[int, BaseException]) -> None:
        """Keeps the number of failures, and calls the user's callbacks. `errors`: by rank."""

    def checkpoints(self) -> bytes:
        """The checkpoints that are reported, pickled, for `get_all_reported_checkpoints`."""

    def close(self, error: BaseException | None, value: bytes) -> Any:
        """The result of the run. `value`: what rank 0 returned, pickled."""


class Plan(msgspec.Struct, frozen=True):
    """What the controller is to do.

    Attributes:
        workers: of the group.
        size: the number of workers.
        max_failures: see `FailurePolicy`.
        has_rendezvous: rank 0 says where the ranks meet before they begin.
        shards_of: called with the nodes of the ranks, in a thread: what each rank gets of the data sets; None: nothing.
        stall_s: how long a rank may wait for another's report, at most; None: without a limit.
    """

    workers: GroupSpec
    size: int
    max_failures: int = 0
    has_rendezvous: bool = False
    shards_of: Any = None
    stall_s: float | None = None


class Failures(Exception):
    """The workers have failed. `errors`: by rank; none where the run failed as a whole."""

    def __init__(self, message: str, errors: Mapping[int, BaseException] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or {}


class Aborted(Exception):
    """Somebody gave the run up."""


ABORT = "abort"
"""The request that gives the run up."""


class TrainController:
    """See the module. Its end is the result that the keeper makes of the run."""

    def __init__(self, plan: Plan, keeper: Keeper) -> None:
        self.machine: Machine[State, Input] = Machine("the run", State.INITIALIZING, TRANSITIONS)
        self.plan = plan
        self.attempt = 0
        self.latest = b""  # the latest committed checkpoint, pickled
        self.committed = 0  # reports of the attempt
        self._keeper = keeper
        self._policy = FailurePolicy(plan.max_failures)
        self._generation = 0
        self._group = self._new_group()
        self._restarts: dict[Key, int] = {}  # of the members, as the last `ActorUp` told
        self._needed: dict[Key, int] = {}  # restarts after which a member that died is there again
        self._workers: list[Key] = []  # by rank
        self._places: list[Place] = []
        self._active: set[int] = set()  # ranks whose training function has not ended
        self._returned: dict[int, bytes] = {}
        self._ledger = Ledger(0)
        self._rendezvous: Any = None
        self._shards: list[Any] | None = None
        self._is_preparing = False
        self._is_leaving = False
        self._errors: dict[int, BaseException] = {}  # of the attempt
        self._end: BaseException | None = None
        self._value = b""
        self._queue: deque[Perform] = deque()  # for the keeper; the first is under way
        self._complete: list[Complete] = []  # not yet given to the keeper
        self._wanted: list[tuple[int, Wanted]] = []
        self._since: dict[int, float] = {}  # when a rank began to wait for others
        self._state_s = 0.0
        self._stacks: dict[int, str] | None = None
        self._stalled = ""

    # ------------------------------------------------------------ events

    def step(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Begin():
                self._state_s = now
                effects += self._keep(Perform("open", self._keeper.open))
            case Done(("keeper", what), value):
                effects += self._kept(what, value, now)
            case Failed(("keeper", _), error):
                self._queue.clear()
                self._complete.clear()
                effects += self._give_up(error, now)
            case Item(("run", int(attempt), int(rank)) as key, index, metadata=metadata):
                effects += self._records(attempt, rank, key, index, metadata, now)
            case Done(("batch", int(attempt), int(rank)), value):
                effects += [*self._take(attempt, rank, value, now), Take(("run", attempt, rank))]
            case Failed(("batch", int(attempt), int(rank)), error):
                effects += self._run_ended(attempt, rank, error, now)
            case Done(("run", int(attempt), int(rank))):
                effects += self._run_ended(attempt, rank, None, now)
            case Failed(("run", int(attempt), int(rank)), error):
                effects += self._run_ended(attempt, rank, error, now)
            case Done(("rendezvous", self.attempt), value):
                self._rendezvous = value
                effects += self._start(now)
            case Failed(("rendezvous", self.attempt), error):
                effects += self._failed(0, error, now)
            case Done(("shards", self.attempt), value):
                self._shards = value
                effects += self._start(now)
            case Failed(("shards", self.attempt), error):
                effects += self._give_up(error, now)
            case Done(("stack", self.attempt, int(rank)), value):
                effects += self._stack(rank, value, now)
            case TimerFired("stacks"):
                effects += self._stack(None, "", now)
            case TimerFired(("leave", self.attempt)) if self._active:
                effects += self._cold(now)
            case Requested(number, what):
                effects += self._request(number, what, now)
            case Overdue(wait):
                effects += self._overdue(wait, now)
            case ActorUp(key, restarts=restarts):
                self._restarts[key] = restarts
        if self.machine.state in _WITH_WORKERS and not isinstance(event, Begin):
            effects += self._group.step(event, now)
            if self._group.failure:
                effects += self._give_up(
                    Failures(f"The workers cannot be started: {self._group.failure}"), now
                )
        return [*effects, *self._go_on(now)]

    def waiting_for(self) -> list[Wait]:
        state = self.machine.state
        waits = []
        if self._queue:
            waits.append(Wait("keeper", f"the run's folder: {self._queue[0].key}", self._state_s))
        if state in (State.SCHEDULING, State.RESCHEDULING, State.RESTARTING):
            waits += self._group.waiting_for()
            for rank in self._active:
                waits.append(
                    Wait(("leaves", rank), f"rank {rank} to leave the training function", self._state_s)
                )
        elif state is State.RUNNING:
            for rank, others in self._ledger.waiting().items():
                names = ", ".join(map(str, sorted(others)))
                what = f"rank {rank} waits for rank {names} to call report(), or the same collective function"
                limit_s = None if self._is_leaving else self.plan.stall_s
                waits.append(Wait(("rank", rank), what, self._since.get(rank, self._state_s), limit_s))
            for rank in sorted(self._active):
                waits.append(Wait(("train", rank), f"the training function on rank {rank}", self._state_s))
        return waits

    # ------------------------------------------------------------ workers

    def _new_group(self) -> Group:
        self._generation += 1
        spec = msgspec.structs.replace(self.plan.workers, name=f"{self.plan.workers.name}-{self._generation}")
        return Group(spec, AllOrNone(self.plan.size, failures=-1))

    def _go_on(self, now: float) -> list[Effect]:
        """What is possible now: the next attempt, or the end."""
        state = self.machine.state
        is_idle = not self._active and not self._queue and not self._complete
        if state in (State.SCHEDULING, State.RESCHEDULING, State.RESTARTING) and not self._is_preparing:
            # The next attempt begins from the last checkpoint of this one.
            return self._prepare(now) if is_idle and self._all_are_up() else []
        if state is State.RUNNING and not self._active:
            return self._all_have_ended(now)
        if state is State.SHUTTING_DOWN and is_idle:
            return self._keep(Perform("close", self._keeper.close, (self._end, self._value)))
        return []

    def _all_are_up(self) -> bool:
        members = self._group.in_state(MemberState.READY)
        missing = [
            key
            for key, count in self._needed.items()
            if key in self._group.members and self._restarts.get(key, 0) < count
        ]
        return len(members) == self.plan.size and not missing

    def _prepare(self, now: float) -> list[Effect]:
        """Begins an attempt: ranks, the place to meet, the shards of the data sets."""
        self.attempt += 1
        self.committed = 0
        self._is_preparing = True
        self._is_leaving = False
        self._rendezvous = self._shards = None
        self._stacks = None
        self._errors.clear()
        self._returned.clear()
        self._wanted.clear()
        self._since.clear()
        self._ledger = Ledger(self.plan.size)
        members = self._group.members
        order = [key for key in self._workers if key in members]
        order += [key for key in members if key not in order]
        self._places = placed([members[key].node_id for key in order])
        self._workers = [order[place.worker] for place in self._places]
        effects: list[Effect] = []
        if self.plan.has_rendezvous:
            arguments = (self._places[0],)
            effects.append(
                Call(("rendezvous", self.attempt), self._workers[0], "rendezvous", arguments, fetch=True)
            )
        if self.plan.shards_of is not None:
            nodes = [members[key].node_id for key in self._workers]
            effects.append(Perform(("shards", self.attempt), self.plan.shards_of, (nodes,)))
        return [*effects, *self._start(now)]

    def _start(self, now: float) -> list[Effect]:
        """Runs the training function on all ranks, once everything for it is there."""
        if self.plan.has_rendezvous and self._rendezvous is None:
            return []
        if self.plan.shards_of is not None and self._shards is None:
            return []
        self._is_preparing = False
        self._move(Input.STARTED, now)
        effects: list[Effect] = []
        for place, worker in zip(self._places, self._workers, strict=True):
            key = ("run", self.attempt, place.rank)
            shards = self._shards[place.rank] if self._shards is not None else None
            arguments = (self.attempt, place, self._rendezvous, shards, self.latest)
            effects += self._group.call(key, "run", arguments, now, member=worker)
            effects.append(Take(key, TAKEN))
            self._active.add(place.rank)
        return effects

    # ------------------------------------------------------------ records

    def _records(
        self, attempt: int, rank: int, key: Key, index: int, metadata: Any, now: float
    ) -> list[Effect]:
        if metadata is None:  # too large to ride along
            return [
                Perform(("batch", attempt, rank), _value, (ResultOf((key, index)),)),
                Forget((key, index)),
            ]
        return [*self._take(attempt, rank, metadata, now), Forget((key, index)), Take(key)]

    def _take(self, attempt: int, rank: int, batch: bytes, now: float) -> list[Effect]:
        if attempt != self.attempt:
            return []
        effects: list[Effect] = []
        for record in decode(batch):
            match record:
                case Reported():
                    self._ledger.report(rank, record)
                case Uploaded(number, part):
                    self._ledger.upload(rank, number, part)
                case Asked():
                    self._ledger.ask(rank, record)
                case Wanted():
                    self._wanted.append((rank, record))
                case Returned(value, has_left):
                    if not has_left:
                        self._returned[rank] = value
                        self._ledger.returned(rank)
        self._complete += self._ledger.take_complete()
        effects += self._keep_complete()
        effects += self._answer_wanted()
        try:
            for number, data in self._ledger.take_answers():
                effects += self._tell_all(Answered(number, data))
        except ValueError as error:
            return [*effects, *self._give_up(Failures(str(error)), now)]
        waiting = self._ledger.waiting()
        self._since = {rank: self._since.get(rank, now) for rank in waiting}
        problem = self._ledger.divergence()
        if problem and not self._is_leaving:
            effects += self._give_up(Failures(problem), now)
        return effects

    def _keep_complete(self) -> list[Effect]:
        """One batch of reports is with the keeper at a time; those that come meanwhile are the next."""
        if not self._complete or any(perform.key == ("keeper", "keep") for perform in self._queue):
            return []
        batch, self._complete = self._complete, []
        return self._keep(Perform("keep", self._keeper.keep, (batch,)))

    def _answer_wanted(self) -> list[Effect]:
        ready = [(rank, wanted) for rank, wanted in self._wanted if wanted.after <= self.committed]
        self._wanted = [each for each in self._wanted if each not in ready]
        effects: list[Effect] = []
        for rank, wanted in ready:
            effects += self._keep(
                Perform(("list", self.attempt, rank, wanted.number), self._keeper.checkpoints)
            )
        return effects

    def _tell_all(self, message: Message) -> list[Effect]:
        return [effect for rank in sorted(self._active) for effect in self._tell(rank, message)]

    def _tell(self, rank: int, message: Message) -> list[Effect]:
        key = ("tell", self.attempt, rank, type(message).__name__, getattr(message, "number", self.committed))
        return [Call(key, self._workers[rank], "tell", (self.attempt, message))]

    # ------------------------------------------------------------ the keeper

    def _keep(self, work: Perform) -> list[Effect]:
        """Has the keeper do something, after what it does now."""
        self._queue.append(msgspec.structs.replace(work, key=("keeper", work.key)))
        return [self._queue[0]] if len(self._queue) == 1 else []

    def _kept(self, what: Any, value: Any, now: float) -> list[Effect]:
        done = self._queue.popleft()
        effects: list[Effect] = [self._queue[0]] if self._queue else []
        match what:
            case "open":
                self.latest = value.checkpoint
                self._policy.failures = value.failures
                self._move(Input.OPENED, now)
                effects += self._group.step(Begin(), now)
            case "keep":
                self.latest = value.checkpoint
                batch = done.args[0]
                self.committed = batch[-1].number + 1
                if any(report.checkpoint for report in batch):
                    effects += self._tell_all(Committed(self.committed, self.latest))
                effects += self._keep_complete()
                effects += self._answer_wanted()
            case ("list", self.attempt, int(rank), int(number)):
                if rank in self._active:
                    effects += self._tell(rank, Answered(number, value, is_list=True))
            case "close":
                self._move(Input.CLOSED_WITH_ERROR if self._end is not None else Input.CLOSED, now)
                effects.append(Stop(value))
        return effects

    # ------------------------------------------------------------ ends and failures

    def _run_ended(self, attempt: int, rank: int, error: BaseException | None, now: float) -> list[Effect]:
        if attempt != self.attempt:
            return []
        self._active.discard(rank)
        return [] if error is None else self._failed(rank, error, now)

    def _failed(self, rank: int, error: BaseException, now: float) -> list[Effect]:
        """A rank has failed. The others leave the training function, whatever follows."""
        if isinstance(error, RayActorError):  # its process is gone, whether the group knows it yet or not
            worker = self._workers[rank]
            self._needed[worker] = self._restarts.get(worker, 0) + 1
        is_first = not self._errors and not self._is_leaving
        self._errors[rank] = error
        self._is_preparing = False
        if not is_first:
            return []
        decision = self._policy.failed(self.committed > 0 or bool(self._complete))
        failed = (self._policy.failures, dict(self._errors))
        effects = self._keep(Perform("failed", self._keeper.failed, failed))
        match decision:
            case Decision.GIVE_UP:
                effects += self._leave(now)
                self._end = Failures(f"The training function failed on rank {rank}", self._errors)
                self._move(Input.OVER, now)
            case Decision.WARM:
                effects += self._leave(now)
                self._move(Input.WARM_RESTART, now)
            case Decision.COLD:
                effects += self._cold(now)
        return effects

    def _leave(self, now: float) -> list[Effect]:
        self._is_leaving = True
        effects: list[Effect] = [Sleep(("leave", self.attempt), LEAVE_S)] if self._active else []
        for rank in sorted(self._active):
            effects.append(Call(("leave", self.attempt, rank), self._workers[rank], "leave", (self.attempt,)))
        return effects

    def _cold(self, now: float) -> list[Effect]:
        """Ends all processes and starts new ones."""
        effects: list[Effect] = list(self._group.end(now))
        self._active.clear()
        self._needed.clear()
        self._is_preparing = False
        if self.machine.state is State.SHUTTING_DOWN:
            return effects
        self._group = self._new_group()
        self._move(Input.COLD_RESTART, now)
        return [*effects, *self._group.step(Begin(), now)]

    def _give_up(self, error: BaseException, now: float) -> list[Effect]:
        """Ends the run with an error."""
        if self._end is not None or self.machine.state not in (_I, _S, _R, _W, _C):
            return [Stop(error=self._end or error)] if self.machine.state is _D and not self._queue else []
        self._end = error
        effects = self._leave(now)
        self._move(Input.OVER, now)
        return effects

    def _all_have_ended(self, now: float) -> list[Effect]:
        problem = self._ledger.left_over()
        if problem:
            return self._give_up(Failures(problem), now)
        self._value = self._returned.get(0, b"")
        self._move(Input.OVER, now)
        return self._go_on(now)

    # ------------------------------------------------------------ stalls and requests

    def _overdue(self, wait: Wait, now: float) -> list[Effect]:
        match wait.key:
            case ("rank", int(_)) if self._stacks is None:
                self._stalled = wait.what
                self._stacks = {}
                return [
                    Sleep("stacks", STACKS_S),
                    *(
                        Call(("stack", self.attempt, rank), self._workers[rank], "stack", fetch=True)
                        for rank in sorted(self._active)
                    ),
                ]
        return []

    def _stack(self, rank: int | None, text: str, now: float) -> list[Effect]:
        if self._stacks is None:
            return []
        if rank is not None:
            self._stacks[rank] = text
            if len(self._stacks) < len(self._active):
                return []
        stacks = "\n".join(f"Rank {rank}:\n{text}" for rank, text in sorted(self._stacks.items()))
        self._stacks = None
        limit = f"{self.plan.stall_s:g} s" if self.plan.stall_s is not None else "a while"
        return self._give_up(Failures(f"Nothing went on for {limit}: {self._stalled}.\n{stacks}"), now)

    def _request(self, number: int, what: Any, now: float) -> list[Effect]:
        if what == ABORT:
            effects: list[Effect] = [Reply(number), *self._group.end(now)]
            if self.machine.can(Input.ABORT):
                self._move(Input.ABORT, now)
                effects.append(Stop(error=Aborted("The run was aborted.")))
            return effects
        return [Reply(number, self.machine.state.value)]

    def _move(self, cause: Input, now: float) -> None:
        self.machine.step(cause, now)
        self._state_s = now


def _value(reference: Any) -> Any:
    import runtime

    return runtime.get(reference)
