"""The controller of one run of training: starts the workers, runs the training function on them, commits their reports,
and starts again after failures. Pure.

What it has done outside of its own state is the work of a `Keeper`, in threads of the controller's process: it opens
the run's folder, commits reports, and closes the run. Calls of the workers' methods are named by attempt and rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from runtime._controllers.controller import (
    ActorLost,
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
    Noticed,
    Overdue,
    Perform,
    Reply,
    Requested,
    Restart,
    ResultOf,
    Sleep,
    Stop,
    Take,
    TimerFired,
    Wait,
    Watch,
)
from runtime._controllers.members import CALLABLE, Group, MemberState
from runtime._core.fsm import Machine
from runtime.exceptions import RayActorError

from . import records
from .attempt import Attempt
from .copies import Copies
from .failure_policy import Decision, FailurePolicy
from .keeping import TIDY, Keeping
from .limits import END_S, EXPLAINED_S, REPLACE_S, STARTS, TAKEN
from .plan import ABORT, Aborted, Failures, Keeper, Plan
from .processes import Machines, Processes
from .ranks import placed
from .records import Committed, Message, Record, decode
from .scaling_policy import Gangs, Size
from .states import STARTING, TRANSITIONS, Input, State
from .validations import Validations

_WITH_WORKERS = (*STARTING, State.RUNNING)


class TrainController:
    """See the module. Its end is the result that the keeper makes of the run."""

    def __init__(self, plan: Plan, keeper: Keeper) -> None:
        self.machine: Machine[State, Input] = Machine("the run", State.INITIALIZING, TRANSITIONS)
        self.plan = plan
        self.attempt = Attempt()
        self.latest = b""  # the latest committed checkpoint, pickled
        self._keeper = keeper
        self._keeping = Keeping(keeper)
        self._validations = Validations(plan.validation, plan.validation_options)
        self._policy = FailurePolicy(plan.max_failures, max_preemptions=plan.max_preemptions)
        self._size = Size(plan.least or plan.size, plan.size)
        self._patience_s = min(REPLACE_S, plan.resize_s)
        self._generation = 0
        self._group, self._gangs = self._new_group(plan.size)
        self._looks = 0  # for room; the last is under way if `_is_looking`
        self._is_looking = False
        self._waits = 0  # for workers; the last is over if `_has_waited`
        self._has_waited = False
        self._processes = Processes()
        self._machines = Machines()
        self._copies = Copies()
        self._lost_starts = 0  # processes that ended since the training function ran last
        self._end: BaseException | None = None
        self._value = b""
        self._state_s = 0.0
        self._spent_s = dict.fromkeys(State, 0.0)  # in states that were left

    # ------------------------------------------------------------ events

    def step(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        attempt = self.attempt
        match event:
            case Begin():
                self._state_s = now
                effects += [Watch("nodes"), *self._keeping.put("open", self._keeper.open)]
            case Done(("keeper", what), value):
                effects += self._kept(what, value, now)
            case Failed(("keeper", what), error):
                effects += self._not_kept(what, error, now)
            case Done(key) if key == TIDY:
                effects += self._keeping.tidied()
            case Failed(key, error) if key == TIDY:
                effects += [*self._keeping.tidied(), *self._give_up(error, now)]
            case Done(("validation", _)) | Failed(("validation", _)) | TimerFired(("validation", _)):
                more, outcomes = self._validations.step(event, now)
                effects += more
                for outcome in outcomes:
                    effects += self._keeping.put("validated", self._keeper.validated, (outcome,))
            case Item(("run", attempt.number, int(rank)) as key, index, metadata=metadata):
                effects += self._announced(rank, key, index, metadata, now)
            case Done(("batch", attempt.number, int(rank), int(index)), value):
                attempt.inboxes[rank].arrive(index, value)
                effects += [Take(("run", attempt.number, rank)), *self._look_into(rank, now)]
            case Failed(("batch", attempt.number, int(rank), int(index)), error):
                attempt.inboxes[rank].lose(index)
                effects += [Take(("run", attempt.number, rank)), *self._failed(rank, error, now)]
                effects += self._look_into(rank, now)
            case Done(("run", attempt.number, int(rank))):
                attempt.inboxes[rank].end(None)
                effects += self._look_into(rank, now)
            case Failed(("run", attempt.number, int(rank)), error):
                attempt.inboxes[rank].end(error)
                effects += self._look_into(rank, now)
            case Done(("rendezvous", attempt.number) as key, value):
                effects += [Forget(key), *self._start("rendezvous", value, now)]
            case Done(("shards", attempt.number), value):
                effects += self._start("shards", value, now)
            case Failed(("rendezvous", attempt.number), error) if attempt.is_preparing:
                effects += self._not_met(error, now)
            case Failed(("shards", attempt.number), error):
                effects += self._give_up(error, now)
            case Done(("stack", attempt.number, int(rank)) as key, value):
                effects += [Forget(key), *self._stack(rank, value, now)]
            case TimerFired(("stacks", attempt.number)):
                effects += self._stack(None, "", now)
            case TimerFired(("leave", attempt.number)) if attempt.active:
                attempt.is_ended = True
                effects += [Restart(attempt.workers[rank]) for rank in sorted(attempt.active)]
                effects.append(Sleep(("end", attempt.number), END_S))
            case TimerFired(("end", attempt.number)) if attempt.active:
                effects += self._cold(now)
            case Done(("room", number), int(room)) if number == self._looks:
                effects += self._found(room, now)
            case Failed(("room", number), error) if number == self._looks:
                effects += self._give_up(error, now)
            case TimerFired(("replace", self._waits)):
                effects += self._waited(now)
            case TimerFired("resize"):
                effects += self._monitor(now)
            case Done(("tell" | "hold" | "leave" | "rendezvous" | "stack", *_) as key):
                effects.append(Forget(key))
            case Requested(number, what):
                effects += self._request(number, what, now)
            case Overdue(wait):
                effects += self._overdue(wait, now)
            case ActorUp(key, restarts=restarts):
                self._processes.up(key, restarts)
            case Noticed(news) if self._machines.take(news.node_id, news.state.value, news.deadline_ms):
                if news.node_id in attempt.nodes:
                    effects += self._tell_all(records.Preempted(self._machines.leaving(attempt.nodes)))
            case ActorLost(key, reason) if key in self._group.members:
                self._lost_starts += self.machine.state in STARTING
                attempt.process_ended(key, reason)
                effects += self._tell_failure(attempt.is_explained)
            case TimerFired(("explained", attempt.number)):
                effects += self._tell_failure(True)
        is_created = bool(self._group.members) or not self._is_looking
        if self.machine.state in _WITH_WORKERS and is_created:
            effects += self._group.step(event, now)
            failure = self._group.failure
            if self._lost_starts >= STARTS * self.plan.size:
                failure = f"{self._lost_starts} of their processes ended before the training function ran"
            if failure:
                effects += self._give_up(Failures(f"The workers cannot be started: {failure}"), now)
        return [*effects, *self._go_on(now)]

    def waiting_for(self) -> list[Wait]:
        state, attempt = self.machine.state, self.attempt
        waits = [*self._keeping.waits(self._state_s), *self._validations.waits()]
        if state in STARTING:
            if self._is_looking:
                waits.append(Wait("room", "how many workers have room", self._state_s))
            waits += attempt.leaves(self._state_s)
            waits += attempt.preparations(self._state_s)
            waits += self._group.waiting_for()
            running = [member.key for member in self._group.in_state(MemberState.READY)]
            waits += self._processes.waits(running, self._state_s)
        elif state is State.RUNNING:
            waits += attempt.waits(self._state_s, None if attempt.is_leaving else self.plan.stall_s)
        elif state is State.SHUTTING_DOWN:
            waits += attempt.leaves(self._state_s)
            if attempt.untold_failures is not None:
                waits.append(Wait("explained", "the cluster to say why a process has ended", self._state_s))
        return waits

    # ------------------------------------------------------------ workers

    def _new_group(self, size: int) -> tuple[Group, Gangs]:
        self._generation += 1
        spec = msgspec.structs.replace(self.plan.workers, name=f"{self.plan.workers.name}-{self._generation}")
        gangs = Gangs(size)
        return Group(spec, gangs), gangs

    def _create(self, size: int, now: float) -> list[Effect]:
        self._group, self._gangs = self._new_group(size)
        return [*self._group.step(Begin(), now), *self._wait_for_workers()]

    def _go_on(self, now: float) -> list[Effect]:
        """What is possible now: the next attempt, or the end."""
        effects: list[Effect] = []
        attempt = self.attempt
        if self.machine.state is State.RUNNING and not attempt.active:
            problem = attempt.ledger.left_over()
            if problem:
                effects += self._give_up(Failures(problem), now)
            else:
                self._value = attempt.returned.get(0, b"")
                self._move(Input.OVER, now)
        if attempt.active or not self._keeping.is_idle:
            return effects
        if attempt.untold_failures is not None:
            # Workers that start anew say why earlier ones have ended, so that only the end may have to wait for that.
            is_time = self.machine.state in STARTING and self._enough_are_up()
            return [*effects, *self._tell_failure(is_time)]
        if self.machine.state is State.SHUTTING_DOWN:
            if self._validations.need_resources and not self._group.failure:
                effects += self._group.end(now)  # those of the workers
            if not self._validations.are_pending and self._keeping.is_tidy:
                effects += self._keeping.put("close", self._keeper.close, (self._end, self._value))
        elif self.machine.state in STARTING and not attempt.is_preparing:
            if self.plan.new_processes and attempt.has_begun:
                effects += self._processes.replace(attempt.workers, attempt.restarts)
            if self._enough_are_up():  # it begins from the last checkpoint of the one before
                effects += self._prepare(now)
        return effects

    def _ready(self) -> list[Key]:
        missing = self._processes.missing(self._group.members)
        return [member.key for member in self._group.in_state(*CALLABLE) if member.key not in missing]

    def _enough_are_up(self) -> bool:
        return self._size.is_enough(len(self._ready()), len(self._group.members), self._has_waited)

    def _prepare(self, now: float) -> list[Effect]:
        """Begins an attempt: ranks, the place to meet, the shards of the data sets."""
        members, ready = self._group.members, self._ready()
        order = [key for key in self.attempt.workers if key in ready]
        order += [key for key in ready if key not in order]
        places = placed([members[key].node_id for key in order])
        workers = [order[place.worker] for place in places]
        missing = ["rendezvous"] if self.plan.has_rendezvous else []
        missing += ["shards"] if self.plan.shards_of is not None else []
        number, nodes = self.attempt.number + 1, [members[key].node_id for key in workers]
        restarts = self._processes.restarts(workers)
        self.attempt = Attempt(number, places, workers, restarts, missing, nodes)
        effects: list[Effect] = self._copies.attempt_ended()
        if "rendezvous" in missing:
            effects.append(Call(("rendezvous", number), workers[0], "rendezvous", (places[0],), fetch=True))
        if "shards" in missing:
            effects.append(Perform(("shards", number), self.plan.shards_of, (nodes,)))
        return effects if missing else [*effects, *self._start("", None, now)]

    def _start(self, what: str, value: Any, now: float) -> list[Effect]:
        """Runs the training function on all ranks, once everything for it is there."""
        attempt = self.attempt
        if not attempt.is_preparing:
            return []
        attempt.has(what, value)
        if attempt.missing:
            return []
        attempt.is_preparing = False
        is_same = attempt.restarts == self._processes.restarts(attempt.workers)
        if not is_same or not {*attempt.workers} <= {*self._ready()}:
            return []  # where the ranks meet may be gone: all of it once more
        self._lost_starts = 0
        attempt.has_begun = True
        self._move(Input.STARTED, now)
        effects: list[Effect] = []
        shards: Any = attempt.gathered.get("shards")
        for place, worker in zip(attempt.places, attempt.workers, strict=True):
            key = ("run", attempt.number, place.rank)
            shard = shards[place.rank] if shards is not None else None
            meeting = attempt.gathered.get("rendezvous")
            arguments = (attempt.number, place, meeting, shard, self.latest, self._copies.results)
            effects += self._group.call(key, "run", arguments, now, member=worker)
            effects.append(Take(key, TAKEN))
            attempt.active.add(place.rank)
        return effects

    def _not_met(self, error: BaseException, now: float) -> list[Effect]:
        """Rank 0 has not said where the ranks meet."""
        if not isinstance(error, RayActorError):
            return self._failed(0, error, now)
        self._is_gone(0)  # before the training function ran: no failure of it
        self.attempt.is_preparing = False
        return []

    # ------------------------------------------------------------ size

    def _look_for_room(self) -> list[Effect]:
        if self._is_looking or self.plan.room_for is None:
            return []
        self._is_looking = True
        self._looks += 1
        return [Perform(("room", self._looks), self.plan.room_for)]

    def _found(self, room: int, now: float) -> list[Effect]:
        """So many more workers have room."""
        self._is_looking = False
        state, members = self.machine.state, len(self._group.members)
        if state in (State.SCHEDULING, State.RESCHEDULING) and not members:
            return self._create(self._size.first(room), now)
        if state is State.RUNNING and self._size.more(members, room):
            self._gangs.add(self._size.more(members, room))
            return self._group.adjust(0, now)
        return []

    def _wait_for_workers(self) -> list[Effect]:
        """From now on, for a while."""
        self._waits += 1
        self._has_waited = False
        return [Sleep(("replace", self._waits), self._patience_s)] if self._size.is_elastic else []

    def _waited(self, now: float) -> list[Effect]:
        """Some workers are not there in time: it goes on with fewer, which may be others if none is there."""
        self._has_waited = True
        if self.machine.state not in STARTING or self._enough_are_up():
            return []
        if len(self._group.members) <= self._size.least:
            return []  # it needs all of them
        if self.attempt.active:
            return [Sleep(("replace", self._waits), self._patience_s)]
        effects: list[Effect] = [*self._group.end(now)]
        return [*effects, *self._create(self._size.least, now)]

    def _monitor(self, now: float) -> list[Effect]:
        """Looks now and then whether there can be more workers."""
        effects: list[Effect] = [Sleep("resize", self.plan.resize_s)]
        if self.machine.state is State.RUNNING:
            effects += self._resize(now)
            if len(self._group.members) < self._size.most:
                effects += self._look_for_room()
        return effects

    def _resize(self, now: float) -> list[Effect]:
        """Has all workers begin together, if there are more of them than run the training function."""
        attempt = self.attempt
        more = {*self._ready()} - {*attempt.workers}
        if not more or attempt.returned or attempt.is_leaving or self.machine.state is not State.RUNNING:
            return []
        starting = self._group.in_state(MemberState.STARTING)
        if any(now - member.since_s < self._patience_s for member in starting):
            return []  # rather once for all of them
        effects = [*self.attempt.leave(), *self._wait_for_workers()]
        self._move(Input.RESIZE, now)
        return effects

    # ------------------------------------------------------------ records

    def _announced(self, rank: int, key: Key, index: int, metadata: Any, now: float) -> list[Effect]:
        inbox = self.attempt.inboxes[rank]
        inbox.announce()
        if metadata is None:  # too large to ride along
            fetch = Perform(
                ("batch", self.attempt.number, rank, index), self._keeper.fetch, (ResultOf((key, index)),)
            )
            return [fetch]
        inbox.arrive(index, metadata)
        return [Take(key), *self._look_into(rank, now)]

    def _look_into(self, rank: int, now: float) -> list[Effect]:
        """Takes what has come from a rank: batches in order, then the end."""
        effects: list[Effect] = []
        inbox = self.attempt.inboxes[rank]
        for index, batch in inbox.take():
            key = (("run", self.attempt.number, rank), index)
            match decode(batch) if batch else []:
                case [records.Copied(number)]:
                    self._copies.add(number, rank, key)
                case batch_records:
                    effects += [Forget(key), *self._take(rank, batch_records, now)]
        end = inbox.take_end()
        if end is not None:
            self.attempt.active.discard(rank)
            (error,) = end
            effects += self._failed(rank, error, now) if error is not None else []
        return effects

    def _take(self, rank: int, batch: Sequence[Record], now: float) -> list[Effect]:
        effects: list[Effect] = []
        attempt, ledger = self.attempt, self.attempt.ledger
        for record in batch:
            match record:
                case records.Joined(pid):
                    attempt.joined += 1
                    attempt.pids[rank] = pid
                case records.Reported():
                    ledger.report(rank, record)
                case records.Uploaded(number, part):
                    ledger.upload(rank, number, part)
                case records.Asked():
                    ledger.ask(rank, record)
                case records.Wanted():
                    attempt.want(rank, record)
                case records.Returned(value, has_left):
                    if not has_left:
                        attempt.returned[rank] = value
                        ledger.returned(rank)
        effects += self._keeping.keep(ledger.take_complete())
        effects += self._answer_wanted()
        attempt.note_waits(now)
        if attempt.is_leaving:
            return effects
        try:
            for number, data in ledger.take_answers():
                effects += self._tell_all(records.Answered(number, data))
            problem = ledger.divergence()
        except ValueError as error:
            problem = str(error)
        return [*effects, *(self._give_up(Failures(problem), now) if problem else [])]

    def _answer_wanted(self) -> list[Effect]:
        effects: list[Effect] = []
        for rank, wanted in self.attempt.take_wanted(not self._validations.are_pending):
            key = ("list", self.attempt.number, rank, wanted.number)
            effects += self._keeping.put(key, self._keeper.checkpoints)
        return effects

    def _tell_all(self, message: Message) -> list[Effect]:
        return [self.attempt.tell(rank, message) for rank in sorted(self.attempt.active)]

    # ------------------------------------------------------------ the keeper

    def _kept(self, what: Any, value: Any, now: float) -> list[Effect]:
        done, effects = self._keeping.done()
        attempt = self.attempt
        match what:
            case "open":
                self.latest = value.checkpoint
                self._policy.failures = value.failures
                self._move(Input.OPENED, now)
                effects += self._validations.add(value.pending, now)
                effects += (
                    self._look_for_room() if self._size.is_elastic else self._create(self.plan.size, now)
                )
                if self._size.is_elastic:
                    effects.append(Sleep("resize", self.plan.resize_s))
            case "keep":
                self.latest = value.checkpoint
                batch = done.args[0]
                attempt.committed = batch[-1].number + 1
                numbers = [report.number for report in batch if report.checkpoint]
                if numbers:
                    effects += self._tell_all(Committed(attempt.committed, self.latest))
                    number, copies = numbers[-1], self._copies
                    effects += copies.committed(number)
                    effects += copies.hold(attempt.number, number, attempt.workers, attempt.nodes)
                    effects += self._resize(now)  # now it costs least
                effects += self._validations.add(value.pending, now)
                effects += [*self._keeping.keep(), *self._keeping.tidy(value.leftovers)]
                effects += self._answer_wanted()
            case "validated":
                self.latest = value.checkpoint
                self._validations.recorded()
                effects += [*self._keeping.tidy(value.leftovers), *self._answer_wanted()]
            case ("list", attempt.number, int(rank), int(number)):
                if rank in attempt.active:
                    effects.append(attempt.tell(rank, records.Answered(number, value, is_list=True)))
            case "close":
                self._move(Input.CLOSED_WITH_ERROR if self._end is not None else Input.CLOSED, now)
                effects.append(Stop(value))
        return effects

    def _not_kept(self, what: Any, error: BaseException, now: float) -> list[Effect]:
        """The keeper has failed: what it has not kept is lost, and the run ends."""
        self._keeping.drop()
        if what == "close":
            self._move(Input.CLOSED_WITH_ERROR, now)
            return [Stop(error=self._end or error)]
        self._end = self._end or (error if self.machine.state is State.SHUTTING_DOWN else None)
        return [*self._validations.end(), *self._give_up(error, now)]

    # ------------------------------------------------------------ ends and failures

    def _is_gone(self, rank: int) -> None:
        """A rank's process is gone, whether the group knows it yet or not."""
        self._processes.gone(self.attempt.workers[rank], self.attempt.restarts[rank])

    def _failed(self, rank: int, error: BaseException, now: float) -> list[Effect]:
        """A rank has failed. The others leave the training function, whatever follows."""
        attempt = self.attempt
        if isinstance(error, RayActorError):
            self._is_gone(rank)
        if attempt.is_ended and isinstance(error, RayActorError):
            return []  # it was ended because it did not leave
        is_first = not attempt.errors and not attempt.is_leaving
        attempt.failed(rank, error)
        attempt.is_preparing = False
        if not is_first:
            return []
        taken = self._machines.leaving(attempt.nodes)  # one that goes fails the others as well
        if taken:
            decision = self._policy.preempted()
        else:
            decision = self._policy.failed(attempt.has_joined, attempt.ledger.completed > 0)
        attempt.untold_failures = self._policy.failures
        effects = self._tell_failure(attempt.is_explained)
        if attempt.untold_failures is not None:
            effects.append(Sleep(("explained", attempt.number), EXPLAINED_S))
        match decision:
            case Decision.GIVE_UP:
                effects += self.attempt.leave()
                self._end = Failures("The training function has failed.", attempt.errors, taken)
                self._move(Input.OVER, now)
            case Decision.WARM:
                effects += [*self.attempt.leave(), *self._wait_for_workers()]
                self._move(Input.WARM_RESTART, now)
            case Decision.COLD:
                attempt.is_leaving = True
                effects += self._cold(now)
        return effects

    def _tell_failure(self, is_time: bool) -> list[Effect]:
        """Has the keeper note the attempt's failure, once it is known why processes have ended."""
        attempt = self.attempt
        if attempt.untold_failures is None or not is_time:
            return []
        failed = (attempt.untold_failures, dict(attempt.errors))
        attempt.untold_failures = None
        return self._keeping.put("failed", self._keeper.failed, failed)

    def _cold(self, now: float) -> list[Effect]:
        """Ends all processes and starts new ones. What they have said before is still taken."""
        effects: list[Effect] = list(self._group.end(now))
        self._processes.forget()
        self.attempt.is_preparing = False
        self.attempt.is_ended = True
        if self.machine.state is State.SHUTTING_DOWN:
            return effects
        size = self._size.first(len(self._group.members)) if self._size.is_elastic else self.plan.size
        self._move(Input.COLD_RESTART, now)
        return [*effects, *self._create(size, now)]

    def _give_up(self, error: BaseException, now: float) -> list[Effect]:
        """Ends the run with an error."""
        if self.machine.state is State.SHUTTING_DOWN or not self.machine.can(Input.OVER):
            return []
        self._end = error
        effects = self.attempt.leave()
        self._move(Input.OVER, now)
        return effects

    # ------------------------------------------------------------ stalls and requests

    def _overdue(self, wait: Wait, now: float) -> list[Effect]:
        attempt = self.attempt
        match wait.key:
            case ("rank", int(_)) if not attempt.stalled and not attempt.is_leaving:
                return attempt.ask_for_stacks(wait.what)
            case ("replaced", _) if self.machine.state in STARTING:
                return self._cold(now)
        return []

    def _stack(self, rank: int | None, text: str, now: float) -> list[Effect]:
        attempt = self.attempt
        if attempt.is_leaving or self.machine.state is not State.RUNNING:
            return []
        if rank is not None:
            attempt.stacks[rank] = text
            if not attempt.active <= attempt.stacks.keys():
                return []
        return self._give_up(Failures(attempt.stall(self.plan.stall_s)), now)

    def _request(self, number: int, what: Any, now: float) -> list[Effect]:
        if what == ABORT:
            effects: list[Effect] = [Reply(number), *self._validations.end(), *self._group.end(now)]
            if self.machine.can(Input.ABORT):
                self._move(Input.ABORT, now)
                effects.append(Stop(error=Aborted("The run was aborted.")))
            return effects
        return [Reply(number, self.attempt.view(self.machine.state, self._policy.failures, self._spent_s))]

    def _move(self, cause: Input, now: float) -> None:
        self._spent_s[self.machine.state] += now - self._state_s
        self.machine.step(cause, now)
        self._state_s = now
