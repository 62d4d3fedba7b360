"""Which runtime environment what a process starts gets."""

from __future__ import annotations

import json

from runtime._owner.task_environment import Environment

JOB = json.dumps({"runtime_env": {"env_vars": {"A": "job", "B": "job"}}})
OWN = json.dumps({"env_vars": {"A": "own"}})


def test_without_any() -> None:
    environment = Environment("", "")
    assert environment.fields == {}
    assert environment.text == "{}"
    assert environment.of_child(None) == ""


def test_a_driver_has_that_of_its_jobs_workers() -> None:
    environment = Environment(JOB, "")
    assert environment.fields == {"env_vars": {"A": "job", "B": "job"}}
    assert json.loads(environment.text) == environment.fields
    assert environment.of_child(None) == ""  # that of the job


def test_a_worker_with_its_own_passes_it_on() -> None:
    environment = Environment(JOB, OWN)
    assert environment.fields == {"env_vars": {"A": "own"}}
    assert environment.of_child(None) == OWN


def test_what_a_child_names_is_added() -> None:
    environment = Environment(JOB, OWN)
    child = json.loads(environment.of_child({"env_vars": {"C": "child"}}))
    assert child["env_vars"] == {"A": "own", "C": "child"}


def test_what_comes_out_as_the_jobs_is_the_jobs() -> None:
    environment = Environment(JOB, "")
    assert environment.of_child({"env_vars": {"A": "job"}}) == ""
