"""Runs of training over workers of chance: no report is lost or comes twice, and every run ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from runtime._controllers.controller import Begin, Event
from runtime._controllers.loop import Loop
from runtime._controllers.members import GangSpec, GroupSpec
from runtime.train._core.controller import TrainController
from runtime.train._core.plan import ABORT, Aborted, Failures, Plan
from runtime.train._core.states import State
from runtime.train._core.validations import ReportedCheckpointStatus as Status
from tests.sim.controllers.world import Chances
from tests.sim.events import Events, Violation
from tests.sim.train.world import MemoryKeeper, Program, TrainEngine

OUTCOMES = (Status.VALIDATED, Status.VALIDATION_FAILED, Status.VALIDATION_TIMEOUT)
ENDS = (State.FINISHED, State.ERRORED, State.ABORTED)


class Crash(Exception):
    """The controller's process has ended."""


class Checked:
    """A controller that is looked at after every step."""

    def __init__(self, controller: TrainController, world: Events, steps: int) -> None:
        self.controller = controller
        self._world = world
        self._left = steps

    def step(self, event: Event, now: float) -> Any:
        if not isinstance(event, Begin):
            self._left -= 1
            if not self._left:
                raise Crash
        effects = self.controller.step(event, now)
        if self.controller.machine.state not in ENDS and not self.controller.waiting_for():
            self._world.fail(f"it waits for nothing in {self.controller.machine.state} after {event}")
        return effects

    def waiting_for(self) -> Any:
        return self.controller.waiting_for()


@dataclass
class Ran:
    """How a run has ended, and all that took part."""

    result: Any
    keeper: MemoryKeeper
    engine: TrainEngine
    world: Events
    controller: TrainController


def run(
    seed: int,
    program: Program,
    chances: Chances | None = None,
    keeper_fails: float = 0.0,
    crashes: int = 0,
    abort_after_s: float = 0.0,
    drain_after_s: float = 0.0,
    **plan: Any,
) -> Ran:
    world = Events(seed)
    program.seed = seed
    program.once = seed % 7 == 3
    keeper = MemoryKeeper(world, keeper_fails)
    keeper.validation_timeout_s = program.validation_timeout_s
    settings = {
        "workers": GroupSpec("workers", "class", most_calls=16, gang=GangSpec({"CPU": 1}), failed_starts=40),
        "size": 1 + seed % 4,
        "max_failures": -1,
        "has_rendezvous": seed % 3 > 0,
        "new_processes": program.once,
        "shards_of": (lambda nodes: [f"shard {n}" for n in range(len(nodes))]) if seed % 5 == 0 else None,
        **plan,
    }
    try:
        while True:
            engine = TrainEngine(world, chances or Chances(), program, nodes=1 + seed % 3)
            controller = TrainController(Plan(**settings), keeper)
            steps = world.rng.randrange(5, 400) if crashes > 0 else 0
            crashes -= 1
            loop = Loop(Checked(controller, world, steps), engine)
            if drain_after_s:
                world.at(drain_after_s, lambda engine=engine: engine.drain("node-0"))
            if abort_after_s:
                world.at(abort_after_s, lambda loop=loop: loop.request(ABORT))
            try:
                result = loop.run()
            except Aborted as error:
                result = error
            except Crash:
                keeper.first_attempt += 1000
                for actor in [*engine.actors.values()]:
                    actor.life += 1
                world._heap.clear()  # all of it belonged to the process that has ended
                continue
            return Ran(result, keeper, engine, world, controller)
    except Exception as error:
        raise Violation(f"seed {seed}: {error!r}\n{world.story()}\nseed {seed}: {error!r}") from error


def check_finished(ran: Ran, steps: int) -> None:
    """It ended well, and every report that all ranks gave was kept."""
    error, value = ran.result
    assert error is None, ran.world.story()
    assert value == b"0"
    assert ran.controller.machine.state is State.FINISHED
    assert ran.keeper.kept[-1][1] == steps - 1


def check_nothing_is_lost(ran: Ran) -> None:
    """Of every attempt that much is kept as all ranks reported; a report with a checkpoint needs all files, too."""
    kept = Counter(attempt for attempt, _ in ran.keeper.kept)
    program = ran.engine.program
    for attempt in {one.attempt for one in ran.engine.all}:
        calls = [one for one in ran.engine.all if one.attempt == attempt]
        if len(calls) < calls[0].place.world_size or any(
            program.does("checkpoint", step, program.checkpoints) and program.does("asynchronous", step, 0.5)
            for step in range(program.steps)
        ):
            continue
        least = min(one.reported for one in calls)
        found = kept[attempt + ran.keeper.first_attempt]
        assert found == least, f"attempt {attempt}: {found} kept of {least}\n{ran.world.story()}"


def test_quiet_runs_finish() -> None:
    for seed in range(60):
        ran = run(seed, Program())
        check_finished(ran, 12)
        check_nothing_is_lost(ran)
        assert ran.controller.attempt.number == 1


def test_runs_finish_though_functions_fail_and_workers_die() -> None:
    for seed in range(100):
        program = Program(fails=0.01, dies=0.02, leaves_late=0.2)
        chances = Chances(call_fails=0.05, actor_dies=0.1, actor_restarts=0.2)
        ran = run(seed, program, chances)
        check_finished(ran, 12)
        check_nothing_is_lost(ran)


def test_runs_go_on_after_the_controller_has_ended() -> None:
    for seed in range(60):
        ran = run(seed, Program(dies=0.02), Chances(actor_restarts=0.1), crashes=3)
        check_finished(ran, 12)


def test_every_checkpoint_is_validated_once_though_workers_and_the_controller_end() -> None:
    found: Counter[Status] = Counter()
    for seed in range(60):
        program = Program(
            steps=20, dies=0.01, checkpoints=0.5, lists=0.1, validations=0.6, validation_timeout_s=0.45
        )
        ran = run(
            seed, program, Chances(actor_restarts=0.05, call_fails=0.05, immortal_after_s=30.0), crashes=2
        )
        check_finished(ran, 20)
        assert not ran.keeper.pending
        wanted = {step for step in ran.keeper.committed if program.does("validation", step, 0.6)}
        assert {outcome.name for outcome in ran.keeper.outcomes} == {f"step {step}" for step in wanted}
        assert len(ran.keeper.outcomes) == len(wanted)
        found.update(outcome.status for outcome in ran.keeper.outcomes)
    assert min(found[status] for status in OUTCOMES) > 3, found


def test_a_run_that_fails_or_is_aborted_leaves_no_validation_behind() -> None:
    for seed in range(40):
        program = Program(fails=0.1, checkpoints=1.0, validations=1.0)
        aborts = {"abort_after_s": 3.0 + seed * 0.2} if seed % 2 else {}
        ran = run(seed, program, max_failures=1, **aborts)
        if not isinstance(ran.result, Aborted):
            assert not ran.keeper.pending
        assert not [key for key in ran.engine._tasks if key[0] == "validation" and not aborts]


def test_a_run_with_too_many_failures_ends_with_the_first_error() -> None:
    for seed in range(60):
        ran = run(seed, Program(fails=0.2, leaves_late=0.3), max_failures=seed % 3)
        error, _ = ran.result
        if error is not None:
            assert isinstance(error, Failures)
            assert error.errors
            assert ran.keeper.failures == seed % 3 + 1
            assert ran.controller.machine.state is State.ERRORED
        check_nothing_is_lost(ran)


def test_a_run_whose_folder_fails_ends() -> None:
    for seed in range(40):
        program = Program(dies=0.02, checkpoints=0.5)
        try:
            ran = run(seed, program, keeper_fails=0.2)
        except Violation as error:
            if not isinstance(error.__cause__, OSError):
                raise
        else:
            assert ran.keeper.is_closed


@pytest.mark.parametrize("what", ["returns_early", "hangs"])
def test_ranks_that_do_not_report_equally_often_end_the_run(what: str) -> None:
    for seed in range(40):
        program = Program(checkpoints=1.0, **{what: True})
        ran = run(seed, program, size=2 + seed % 3, stall_s=300.0)
        error, _ = ran.result
        assert isinstance(error, Failures), error
        assert "ank " in str(error)


def test_a_run_can_be_aborted_at_any_time() -> None:
    for seed in range(40):
        ran = run(seed, Program(dies=0.02), Chances(actor_restarts=0.2), abort_after_s=0.1 + seed * 0.5)
        assert isinstance(ran.result, Aborted) or ran.result[0] is None
        assert ran.controller.machine.state in (State.ABORTED, State.FINISHED)


def test_runs_grow_where_there_is_room_and_shrink_where_workers_do_not_come_back() -> None:
    grown = shrunk = 0
    for seed in range(40):
        program = Program(steps=40, fails=0.005, dies=0.02, restarts_late_s=500.0)
        rooms = Events(seed).rng
        ran = run(
            seed,
            program,
            Chances(call_fails=0.02, actor_restarts=0.1, actor_dies=0.02),
            size=4,
            least=2,
            room_for=lambda rooms=rooms: rooms.choice((0, 0, 1, 2, 5)),
            resize_s=5.0,
        )
        check_finished(ran, 40)
        check_nothing_is_lost(ran)
        sizes = [one.place.world_size for one in sorted(ran.engine.all, key=lambda one: one.attempt)]
        assert {*sizes} <= {2, 3, 4}
        pairs = [*pairwise(sizes)]
        grown += any(before < after for before, after in pairs)
        shrunk += any(before > after for before, after in pairs)
    assert grown > 5
    assert shrunk > 5


def test_those_who_are_there_keep_their_processes_and_ranks_when_a_run_grows() -> None:
    untouched = 0
    for seed in range(10):
        ran = run(
            seed, Program(steps=200, leaves_late=0.0), size=4, least=2, room_for=lambda: 2, resize_s=30.0
        )
        check_finished(ran, 200)
        begun = sorted({one.attempt for one in ran.engine.all})
        assert len(begun) == 2  # one between them may not have begun, if a process was replaced meanwhile
        first, last = (
            {one.actor.key: one.place.rank for one in ran.engine.all if one.attempt == n} for n in begun
        )
        assert len(last) == 4
        untouched += not any(actor.restarts for actor in ran.engine.actors.values())
        if seed % 3 == 0:  # one node
            assert first.items() <= last.items()
        assert first.keys() <= last.keys()
    assert untouched > 5  # in the others a rank was slow to leave


def test_machines_that_are_taken_away_are_told_and_are_no_failures() -> None:
    told = 0
    for seed in range(40):
        ran = run(seed, Program(steps=40), drain_after_s=8.0, max_failures=0)
        check_finished(ran, 40)
        check_nothing_is_lost(ran)
        assert ran.keeper.failures == 0
        told += any(one.preempted for one in ran.engine.all)
    assert told > 10


def test_a_seed_is_a_run() -> None:
    first, second = (run(7, Program(dies=0.02), Chances(actor_restarts=0.2)) for _ in range(2))
    assert first.keeper.kept == second.keeper.kept
    assert (first.world.now, first.engine.effects) == (second.world.now, second.engine.effects)
