"""What `up` decides from facts."""

from __future__ import annotations

import dataclasses

import pytest

from clusterctl.launcher.plan import Action, Facts, Health, plan

FRESH = Facts(record_state="", health=Health.UNKNOWN)
RUNNING = Facts(record_state="UP", health=Health.ANSWERS, head_id="h", machines=("h", "w"))
STOPPED = Facts(record_state="STOPPED", health=Health.SILENT, head_id="h", head_stopped=True, machines=("h",))
DEAD = Facts(record_state="UP", health=Health.SILENT, head_id="h", machines=("h", "w"))


def actions(facts: Facts, **changes: object) -> list[str]:
    return [step.action.name for step in plan(dataclasses.replace(facts, **changes)).steps]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "changes", "expected"),
    [
        (FRESH, {}, ["CREATE_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
        (FRESH, {"strangers": ("x",)}, ["END_MACHINES", "CREATE_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
        (RUNNING, {}, []),
        (RUNNING, {"record_state": "STARTING"}, ["AWAIT_WORKERS"]),
        (RUNNING, {"spec_changed": True}, ["PUSH_SPEC", "AWAIT_WORKERS"]),
        (RUNNING, {"head_changed": True}, []),
        (STOPPED, {}, ["BOOT_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
        (STOPPED, {"machines": ("h", "w")}, ["END_MACHINES", "BOOT_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
        (STOPPED, {"spec_changed": True}, ["BOOT_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
        (
            STOPPED,
            {"spec_changed": True, "head_changed": True},
            ["END_MACHINES", "CREATE_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"],
        ),
        (DEAD, {}, ["END_MACHINES", "CREATE_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
        (DEAD, {"machines": ()}, ["CREATE_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
        (DEAD, {"head_stopped": True}, ["END_MACHINES", "CREATE_HEAD", "SET_UP_HEAD", "AWAIT_WORKERS"]),
    ],
)
def test_steps(facts: Facts, changes: dict[str, object], expected: list[str]) -> None:
    assert actions(facts, **changes) == expected


def test_a_dead_cluster_is_ended_whole_before_it_starts_over() -> None:
    chosen = plan(DEAD)
    assert chosen.steps[0].machines == ("h", "w")
    assert chosen.is_new


@pytest.mark.parametrize("health", [Health.SLOW, Health.DENIED])
def test_a_head_that_is_there_is_never_ended(health: Health) -> None:
    chosen = plan(dataclasses.replace(RUNNING, health=health))
    assert not chosen.steps
    assert chosen.refusal
    assert "clusterctl down" in chosen.advice


def test_a_changed_head_is_refused_while_it_runs() -> None:
    chosen = plan(dataclasses.replace(RUNNING, spec_changed=True, head_changed=True))
    assert not chosen.steps
    assert "changes the head" in chosen.refusal


def test_machines_that_nobody_remembers_are_asked_about() -> None:
    assert plan(dataclasses.replace(FRESH, strangers=("x",))).asks
    assert not plan(dataclasses.replace(DEAD, strangers=("x",))).asks


def test_only_a_new_cluster_is_removed_on_interruption() -> None:
    assert plan(FRESH).is_new
    assert not plan(RUNNING).is_new
    assert not plan(STOPPED).is_new


def test_every_action_reads_as_words() -> None:
    assert all(action.value.islower() or "min_workers" in action.value for action in Action)
