"""What `up` decides from facts."""

from __future__ import annotations

import dataclasses

import pytest

from clusterctl.launcher.plan import Action, Change, Facts, Health, Plan, Restart, plan, without_autoscaler

FRESH = Facts(record_state="", health=Health.UNKNOWN)
HALF = Facts(record_state="STARTING", health=Health.UNKNOWN, head_id="h", machines=("h", "w"))
RUNNING = Facts(record_state="UP", health=Health.ANSWERS)
STOPPED = Facts(
    record_state="STOPPED", health=Health.UNKNOWN, head_id="h", head_stopped=True, machines=("h",)
)
DEAD = Facts(record_state="UP", health=Health.DEAD, head_id="h", machines=("h", "w"))
NEW = ["CREATE_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]
OVER = ["END_MACHINES", *NEW]
AGAIN = ["SET_UP_HEAD", "AWAIT_WORKERS"]
RESTARTED = ["STOP_DAEMONS", "END_WORKERS", "SET_UP_HEAD", "AWAIT_WORKERS"]


def decided(facts: Facts, restart: Restart = Restart.IF_NEEDED, **changes: object) -> Plan:
    return plan(dataclasses.replace(facts, **changes), restart)  # type: ignore[arg-type]


def actions(chosen: Plan) -> list[str]:
    return [step.action.name for step in chosen.steps]


@pytest.mark.parametrize(
    ("facts", "changes", "expected"),
    [
        (FRESH, {}, NEW),
        (FRESH, {"strangers": ("x",)}, OVER),
        (RUNNING, {}, []),
        (RUNNING, {"record_state": "STARTING"}, ["AWAIT_WORKERS"]),
        (RUNNING, {"lacks_workers": True}, ["AWAIT_WORKERS"]),
        (RUNNING, {"spec_changed": True}, ["PUSH_SPEC", "AWAIT_WORKERS"]),
        (
            RUNNING,
            {"spec_changed": True, "change": Change.SETUP},
            ["UPDATE_HEAD", "PUSH_SPEC", "AWAIT_WORKERS"],
        ),
        (RUNNING, {"change": Change.SETUP}, ["UPDATE_HEAD", "AWAIT_WORKERS"]),
        (RUNNING, {"spec_changed": True, "change": Change.RESTART}, RESTARTED),
        (HALF, {}, AGAIN),
        (HALF, {"head_stopped": True}, ["BOOT_HEAD", *AGAIN]),
        (HALF, {"spec_changed": True}, ["SET_UP_HEAD", "PUSH_SPEC", "AWAIT_WORKERS"]),
        (HALF, {"change": Change.MACHINE}, OVER),
        (HALF, {"head_id": "", "machines": ()}, NEW),
        (STOPPED, {}, ["BOOT_HEAD", *AGAIN]),
        (STOPPED, {"head_stopped": False}, AGAIN),
        (STOPPED, {"machines": ("h", "w")}, ["END_MACHINES", "BOOT_HEAD", *AGAIN]),
        (STOPPED, {"strangers": ("x",)}, ["END_MACHINES", "BOOT_HEAD", *AGAIN]),
        (STOPPED, {"spec_changed": True}, ["BOOT_HEAD", *AGAIN]),
        (STOPPED, {"spec_changed": True, "change": Change.SETUP}, ["BOOT_HEAD", *AGAIN]),
        (STOPPED, {"spec_changed": True, "change": Change.MACHINE}, OVER),
        (DEAD, {}, ["END_MACHINES", *AGAIN]),
        (DEAD, {"head_stopped": True}, ["END_MACHINES", "BOOT_HEAD", *AGAIN]),
        (DEAD, {"machines": ("h",)}, AGAIN),
        (DEAD, {"head_id": "", "machines": ("w",)}, OVER),
        (DEAD, {"head_id": "", "machines": ()}, NEW),
        (DEAD, {"change": Change.MACHINE}, OVER),
    ],
)
def test_steps(facts: Facts, changes: dict[str, object], expected: list[str]) -> None:
    assert actions(decided(facts, **changes)) == expected


@pytest.mark.parametrize("restart", [*Restart])
@pytest.mark.parametrize("change", [*Change])
@pytest.mark.parametrize("health", [*Health])
@pytest.mark.parametrize("state", ["", "STARTING", "UP", "STOPPED"])
def test_a_plan_refuses_or_ends_in_workers_or_has_nothing_to_do(
    state: str, health: Health, change: Change, restart: Restart
) -> None:
    for head in ("", "h"):
        changed = change is not Change.NOTHING
        facts = Facts(
            state, health, head_id=head, spec_changed=changed, change=change, machines=(head,) * bool(head)
        )
        chosen = plan(facts, restart)
        if chosen.refusal:
            assert not chosen.steps
            assert chosen.advice
        elif chosen.steps:
            assert chosen.steps[-1].action is Action.AWAIT_WORKERS
        else:
            assert health is Health.ANSWERS
            assert state == "UP"


def test_the_head_that_died_is_started_again_on_its_machine_and_its_workers_go() -> None:
    chosen = plan(DEAD)
    assert chosen.steps[0].machines == ("w",)
    assert not chosen.is_new, "its jobs' history is not lost when that fails"


def test_what_an_interrupted_up_made_is_used_and_a_failure_still_removes_it() -> None:
    assert plan(HALF).is_new
    assert "END_MACHINES" not in actions(plan(HALF)), "a head that runs already may have these workers"


def test_a_creation_whose_answer_was_lost_is_repeated_under_the_same_id() -> None:
    assert decided(HALF, head_id="", machines=()).keeps_id
    assert not decided(HALF, change=Change.MACHINE).keeps_id, "its token stands for other arguments"
    assert not decided(DEAD, head_id="").keeps_id
    assert not plan(FRESH).keeps_id


@pytest.mark.parametrize("health", [Health.SLOW, Health.DENIED, Health.CUT_OFF, Health.SILENT])
def test_a_head_that_may_be_alive_is_never_ended(health: Health) -> None:
    chosen = decided(DEAD, health=health, trouble="no route to host")
    assert not chosen.steps
    assert chosen.refusal
    assert "clusterctl down" in chosen.advice


def test_another_machine_for_the_head_is_refused_while_it_runs_and_asked_about_when_it_does_not() -> None:
    refused = decided(RUNNING, spec_changed=True, change=Change.MACHINE)
    assert not refused.steps
    assert "another machine" in refused.refusal
    for facts in (DEAD, STOPPED):
        assert "history" in decided(facts, spec_changed=True, change=Change.MACHINE).asks
    assert not decided(HALF, spec_changed=True, change=Change.MACHINE).asks


def test_restarts_that_end_programs_are_asked_about_and_can_be_forbidden() -> None:
    assert decided(RUNNING, change=Change.RESTART).asks
    assert not decided(RUNNING, change=Change.SETUP).asks
    refused = decided(RUNNING, Restart.NEVER, change=Change.RESTART)
    assert not refused.steps
    assert "--no-restart" in refused.refusal
    for change in (Change.NOTHING, Change.SETUP):
        assert decided(RUNNING, Restart.NEVER, change=change) == decided(RUNNING, change=change)


def test_a_restart_alone_runs_no_setup() -> None:
    chosen = plan(RUNNING, Restart.ONLY)
    assert actions(chosen) == ["STOP_DAEMONS", "END_WORKERS", "START_DAEMONS", "AWAIT_WORKERS"]
    assert chosen.asks
    assert actions(plan(STOPPED, Restart.ONLY)) == ["BOOT_HEAD", "START_DAEMONS", "AWAIT_WORKERS"]
    for change in (Change.SETUP, Change.RESTART):
        assert "--restart-only" in decided(RUNNING, Restart.ONLY, change=change).refusal
        assert "SET_UP_HEAD" in actions(decided(STOPPED, Restart.ONLY, change=change))
    assert "SET_UP_HEAD" in actions(plan(HALF, Restart.ONLY)), "it was never set up"


def test_machines_that_nobody_remembers_are_asked_about() -> None:
    assert decided(FRESH, strangers=("x",)).asks
    assert ": x." in decided(DEAD, strangers=("x",)).asks
    assert ": x." in decided(STOPPED, strangers=("x",)).asks


@pytest.mark.parametrize("facts", [DEAD, dataclasses.replace(DEAD, head_id="", machines=("w",)), STOPPED])
def test_the_end_of_nodes_that_may_run_is_asked_about(facts: Facts) -> None:
    machines = tuple({*facts.machines, "w"})
    asked = decided(facts, machines=machines, live=("w",))
    assert ": w." in asked.asks
    assert "END_MACHINES" in actions(asked)
    assert not decided(facts, machines=machines).asks
    assert not decided(facts, machines=machines, live=("h",)).asks, "it is not ended"


def test_only_a_new_cluster_is_removed_on_interruption() -> None:
    assert plan(FRESH).is_new
    assert not plan(RUNNING).is_new
    assert not plan(STOPPED).is_new


def test_money_is_only_talked_about_where_machines_are_made_or_more_are_allowed() -> None:
    assert plan(FRESH).may_buy
    assert plan(STOPPED).may_buy
    assert decided(RUNNING, spec_changed=True).may_buy
    assert not plan(HALF).may_buy
    assert not plan(RUNNING).may_buy


def test_every_action_reads_as_words() -> None:
    assert all(action.value.islower() or "min_workers" in action.value for action in Action)


def test_without_an_autoscaler_up_makes_the_workers() -> None:
    changed = without_autoscaler(decided(RUNNING, spec_changed=True))
    assert actions(changed) == ["MAKE_WORKERS"]
    assert changed.may_buy
    assert actions(without_autoscaler(decided(FRESH))) == ["CREATE_HEAD", "SET_UP_HEAD", "MAKE_WORKERS"]
    assert actions(without_autoscaler(decided(RUNNING))) == []
