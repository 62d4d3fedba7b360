"""Actors that come back: max_restarts, max_task_retries."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.gate import Gate
from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Phoenix:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self) -> int:
        self.value += 1
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def die(self) -> None:
        os._exit(1)

    def die_once(self, marker: str) -> str:
        if not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(1)
        return "second time"

    def reconstructed(self) -> bool:
        return ray.get_runtime_context().was_current_actor_reconstructed


def call(phoenix: Any, method: str = "add") -> Any:
    """Calls until the actor is back; calls may fail while it restarts."""
    result = []

    def answered() -> bool:
        try:
            result.append(ray.get(getattr(phoenix, method).remote(), timeout=30))
        except exceptions.RayActorError:
            return False
        return True

    assert eventually(answered, timeout_s=40)
    return result[-1]


def dead(phoenix: Any) -> bool:
    try:
        ray.get(phoenix.add.remote(), timeout=30)
    except exceptions.RayActorError as error:
        return isinstance(error, exceptions.ActorDiedError)
    return False


def test_an_actor_starts_over_with_its_constructor() -> None:
    phoenix = Phoenix.options(max_restarts=1).remote(10)
    assert ray.get(phoenix.add.remote()) == 11
    first = ray.get(phoenix.pid.remote())
    assert not ray.get(phoenix.reconstructed.remote())
    os.kill(first, signal.SIGKILL)
    assert call(phoenix) == 11
    assert call(phoenix, "pid") != first
    assert call(phoenix, "reconstructed")


def test_without_restarts_it_stays_dead() -> None:
    phoenix = Phoenix.remote()
    os.kill(ray.get(phoenix.pid.remote()), signal.SIGKILL)
    with pytest.raises(exceptions.RayActorError):
        ray.get(phoenix.add.remote(), timeout=60)


def test_restarts_are_counted() -> None:
    phoenix = Phoenix.options(max_restarts=2).remote()
    for _ in range(2):
        os.kill(call(phoenix, "pid"), signal.SIGKILL)
    pid = call(phoenix, "pid")
    os.kill(pid, signal.SIGKILL)

    assert eventually(lambda: dead(phoenix), timeout_s=40)


def test_without_bound() -> None:
    phoenix = Phoenix.options(max_restarts=-1).remote()
    for _ in range(4):
        os.kill(call(phoenix, "pid"), signal.SIGKILL)
    assert call(phoenix) == 1


def test_a_call_in_flight_fails_unless_it_may_be_repeated() -> None:
    phoenix = Phoenix.options(max_restarts=1).remote()
    with pytest.raises(exceptions.RayActorError):
        ray.get(phoenix.die.remote(), timeout=60)
    assert call(phoenix) == 1


def test_a_call_while_it_restarts_fails_with_the_reason(tmp_path: Any) -> None:
    gate, marker = Gate.remote(), str(tmp_path / "marker")

    @ray.remote(num_cpus=0, max_restarts=1)
    class Slow:
        def __init__(self) -> None:
            if os.path.exists(marker):
                ray.get(gate.pass_through.remote())
            open(marker, "w").close()

        def die(self) -> None:
            os._exit(1)

    slow = Slow.remote()
    with pytest.raises(exceptions.RayActorError):
        ray.get(slow.die.remote(), timeout=60)
    assert eventually(lambda: ray.get(gate.waiting.remote()) == 1)
    with pytest.raises(exceptions.ActorUnavailableError, match="The actor is restarting"):
        ray.get(slow.die.remote(), timeout=60)
    ray.get(gate.open.remote())


def test_max_task_retries_repeats_the_call(tmp_path: Any) -> None:
    phoenix = Phoenix.options(max_restarts=1, max_task_retries=1).remote()
    assert ray.get(phoenix.die_once.remote(str(tmp_path / "marker")), timeout=60) == "second time"


def test_calls_wait_for_the_restart_when_they_may(tmp_path: Any) -> None:
    phoenix = Phoenix.options(max_restarts=-1, max_task_retries=-1).remote()
    refs = [phoenix.die_once.remote(str(tmp_path / "marker")), *(phoenix.add.remote() for _ in range(5))]
    first, *others = ray.get(refs, timeout=60)
    assert first == "second time"
    assert sorted(others) == [1, 2, 3, 4, 5]


def test_kill_with_no_restart_is_final() -> None:
    phoenix = Phoenix.options(max_restarts=-1).remote()
    ray.get(phoenix.add.remote())
    ray.kill(phoenix)
    assert eventually(lambda: dead(phoenix))


def test_kill_may_leave_room_for_a_restart() -> None:
    phoenix = Phoenix.options(max_restarts=1).remote()
    first = ray.get(phoenix.pid.remote())
    ray.kill(phoenix, no_restart=False)

    def other_pid() -> bool:
        return call(phoenix, "pid") != first

    assert eventually(other_pid)


def test_a_call_made_after_kill_is_not_for_the_process_that_was_killed() -> None:
    phoenix = Phoenix.options(max_restarts=-1, max_task_retries=-1).remote()
    pids = []
    for _ in range(6):
        pids.append(ray.get(phoenix.pid.remote()))
        ray.kill(phoenix, no_restart=False)
    assert len(set(pids)) == len(pids)


def test_exit_actor_is_no_reason_to_restart() -> None:
    @ray.remote(num_cpus=0, max_restarts=-1)
    class Leaver:
        def leave(self) -> None:
            ray.actor.exit_actor()

        def hello(self) -> str:
            return "hello"

    leaver = Leaver.remote()
    with pytest.raises(exceptions.RayActorError):
        ray.get(leaver.leave.remote(), timeout=60)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(leaver.hello.remote(), timeout=60)


def test_a_constructor_that_raises_is_not_tried_again(tmp_path: Any) -> None:
    @ray.remote(num_cpus=0, max_restarts=3)
    class Broken:
        def __init__(self) -> None:
            (tmp_path / str(len(list(tmp_path.iterdir())))).touch()
            raise ValueError("broken")

        def hello(self) -> None:
            pass

    with pytest.raises(exceptions.ActorDiedError, match="broken"):
        ray.get(Broken.remote().hello.remote(), timeout=60)
    assert len(list(tmp_path.iterdir())) == 1


def test_restarted_actors_keep_their_name() -> None:
    phoenix = Phoenix.options(name="phoenix", max_restarts=1).remote()
    os.kill(ray.get(phoenix.pid.remote()), signal.SIGKILL)
    assert call(phoenix) == 1
    assert call(ray.get_actor("phoenix")) == 2
    ray.kill(phoenix)


@pytest.mark.skipif(not OWN, reason="looks inside")
def test_a_broken_connection_to_a_living_actor_is_made_again() -> None:
    from runtime._process.core_worker import current

    @ray.remote(num_cpus=0)
    class Plain:
        def pid(self) -> int:
            return os.getpid()

        def hang(self, gate: Any) -> None:
            ray.get(gate.pass_through.remote())

    gate, actor = Gate.remote(), Plain.options(max_concurrency=2).remote()
    pid = ray.get(actor.pid.remote())
    unanswered = actor.hang.remote(gate)
    assert eventually(lambda: ray.get(gate.waiting.remote()) == 1)
    with current().lock:
        actor._ray_actor.link.close()
    assert ray.get(actor.pid.remote(), timeout=30) == pid
    with pytest.raises(exceptions.ActorUnavailableError):
        ray.get(unanswered, timeout=30)
    ray.get(gate.open.remote())
