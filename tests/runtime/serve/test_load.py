"""Under steady load from a real client: updates and drains fail no request, kills at most those in flight.

SERVE_LOAD_ROUNDS=20 repeats each of the events so often under one load; by default each happens once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import httpx
import psutil
import pytest

from tests.polling import eventually
from tests.runtime.serve.echo import APP, Echo, deploy, serve, start
from tests.runtime.serve.steady_load import Answer, SteadyLoad
from tests.under_test import OWN

ROUNDS = int(os.environ.get("SERVE_LOAD_ROUNDS", "1"))
CLIENTS = 4
ENOUGH = 5
"""Answers that are waited for where something goes on."""
pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.timeout(120 + 60 * ROUNDS)]


@pytest.fixture(scope="module")
def url(session: None) -> Iterator[str]:
    """Of the application, which each test deploys anew."""
    yield start()
    serve.shutdown()


@pytest.fixture
def load(url: str) -> Iterator[SteadyLoad]:
    """On two replicas of version 0, both of which answer."""
    deploy(Echo)
    with SteadyLoad(url, CLIENTS) as running:
        assert eventually(lambda: len(running.answers()) == 2), running.failed
        yield running
    serve.delete(APP)


def goes_on(load: SteadyLoad) -> bool:
    """Whether answers come, from now on."""
    before = load.answers()
    return eventually(lambda: load.since(before).total() >= ENOUGH)


def only(load: SteadyLoad, accepted: Callable[[Answer], bool]) -> bool:
    """Whether after a while all answers are from such replicas."""

    def look() -> bool:
        before = load.answers()
        assert goes_on(load)
        return all(accepted(answer) for answer in load.since(before))

    return eventually(look)


def pids(load: SteadyLoad) -> set[int]:
    """Of the replicas that answer."""
    before = load.answers()
    assert eventually(lambda: load.since(before).total() >= 4 * ENOUGH)
    return {answer.pid for answer in load.since(before)}


def listener(url: str) -> int | None:
    """The process that listens at the port of the ingress."""
    port = httpx.URL(url).port
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port:
            return each.pid
    return None


def controller() -> int | None:
    """The process of the controller."""
    from runtime.util.state import list_actors

    alive = list_actors(
        filters=[("name", "=", "SERVE_CONTROLLER_ACTOR"), ("state", "=", "ALIVE")], detail=True
    )
    return alive[0].pid if alive else None


def kill(pid: int | None) -> None:
    assert pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_rolling_update_fails_no_request(load: SteadyLoad) -> None:
    """New arguments need new replicas; the old ones finish what they have."""
    for version in range(1, ROUNDS + 1):
        deploy(Echo, version)
        assert only(load, lambda answer, version=version: answer.version == version)  # type: ignore[misc]
        assert eventually(lambda: len(replicas_of(load, version)) == 2)  # noqa: B023
    assert load.failed == []


def replicas_of(load: SteadyLoad, version: int) -> set[int]:
    """The processes of a version that have answered."""
    return {answer.pid for answer in load.answers() if answer.version == version}


def test_a_new_user_config_fails_no_request(load: SteadyLoad) -> None:
    """It is told to the replicas that there are."""
    for version in range(1, ROUNDS + 1):
        deploy(Echo.options(user_config={"version": version}))
        assert only(load, lambda answer, version=version: answer.version == version)  # type: ignore[misc]
    assert load.failed == []
    assert len({answer.pid for answer in load.answers()}) == 2


def test_more_and_fewer_replicas_fail_no_request(load: SteadyLoad) -> None:
    for _ in range(ROUNDS):
        deploy(Echo.options(num_replicas=3))
        assert eventually(lambda: len(pids(load)) == 3)
        deploy(Echo.options(num_replicas=1))
        assert eventually(lambda: len(pids(load)) == 1)
    assert load.failed == []


def test_a_killed_replica_fails_at_most_what_it_ran(load: SteadyLoad) -> None:
    for _ in range(ROUNDS):
        before = pids(load)
        assert len(before) == 2
        victim = before.pop()
        kill(victim)
        [other] = before
        assert eventually(lambda: pids(load) - {victim, other}), "no new replica answers"  # noqa: B023
        assert eventually(lambda: len(pids(load)) == 2)
    assert len(load.failed) <= 2 * ROUNDS, "a replica runs at most two requests at once"


@pytest.mark.skipif(not OWN, reason="asks this engine for the process of the controller")
def test_a_killed_controller_fails_no_request(load: SteadyLoad) -> None:
    """Traffic goes on without it, its successor takes over the replicas that there are, and rolls out the next one."""
    for version in range(1, ROUNDS + 1):
        victim, replicas = controller(), pids(load)
        kill(victim)
        assert goes_on(load)
        assert eventually(lambda: controller() not in (None, victim)), "no new controller"  # noqa: B023
        assert pids(load) == replicas
        deploy(Echo, version)
        assert only(load, lambda answer, version=version: answer.version == version)  # type: ignore[misc]
    assert load.failed == []


def test_a_killed_ingress_fails_at_most_what_is_in_flight(load: SteadyLoad, url: str) -> None:
    """Another one takes the port."""
    for _ in range(ROUNDS):
        victim = listener(url)
        kill(victim)
        assert eventually(lambda: listener(url) not in (None, victim)), "nobody listens"  # noqa: B023
        assert goes_on(load)
    # A client may lose a second one: the kernel closes one socket after the other, the listening one not first.
    assert len(load.failed) <= 2 * CLIENTS * ROUNDS


def test_a_deleted_application_finishes_its_requests(url: str) -> None:
    """Those that have begun are answered; later ones are told that there is nothing."""
    deploy(Echo)
    for _ in range(ROUNDS):
        with SteadyLoad(url, CLIENTS) as running:
            assert goes_on(running)
            serve.delete(APP)
            assert eventually(lambda: len(running.failed) >= CLIENTS)
        told = ("status 404", "it was deleted")  # the latter where the route was still known
        assert [failed for failed in running.failed if not any(words in failed for words in told)] == []
        deploy(Echo)
    serve.delete(APP)
