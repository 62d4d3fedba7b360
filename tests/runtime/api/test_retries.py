"""What runs again, how often and after what: tasks, methods; and workers that end after max_calls."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.under_test import exceptions, init, ray


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Any:
    init(num_cpus=4, num_gpus=2)
    yield
    ray.shutdown()


class Special(ValueError):
    pass


def count(notes: Path) -> int:
    """Which attempt this is."""
    with notes.open("a") as file:
        file.write("x")
    return len(notes.read_text())


@ray.remote
def die_until(notes: Path, attempt: int) -> int:
    here = count(notes)
    if here < attempt:
        os._exit(1)
    return here


@ray.remote
def raise_until(notes: Path, attempt: int, error: type[Exception] = Special) -> int:
    here = count(notes)
    if here < attempt:
        raise error(f"attempt {here}")
    return here


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


class TestTasks:
    def test_three_retries_by_default(self, notes: Path) -> None:
        assert ray.get(die_until.remote(notes, 4)) == 4

    def test_the_budget_is_kept(self, notes: Path) -> None:
        with pytest.raises(
            exceptions.WorkerCrashedError, match="The worker died unexpectedly while executing"
        ):
            ray.get(die_until.options(max_retries=1).remote(notes, 3))
        assert len(notes.read_text()) == 2

    def test_without_bound(self, notes: Path) -> None:
        assert ray.get(die_until.options(max_retries=-1).remote(notes, 7)) == 7

    def test_none_at_all(self, notes: Path) -> None:
        with pytest.raises(exceptions.WorkerCrashedError):
            ray.get(die_until.options(max_retries=0).remote(notes, 2))

    def test_death_by_a_signal(self, notes: Path) -> None:
        @ray.remote(max_retries=1)
        def killed() -> int:
            here = count(notes)
            if here < 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return here

        assert ray.get(killed.remote()) == 2

    @pytest.mark.parametrize(
        "chosen",
        [True, [Special], (ValueError,), [KeyError, ValueError]],
        ids=["all", "one", "base", "several"],
    )
    def test_errors_that_were_chosen(self, notes: Path, chosen: Any) -> None:
        assert ray.get(raise_until.options(retry_exceptions=chosen).remote(notes, 3)) == 3

    @pytest.mark.parametrize("chosen", [False, [], [KeyError]], ids=["none", "nothing", "another"])
    def test_errors_that_were_not(self, notes: Path, chosen: Any) -> None:
        with pytest.raises(Special, match="attempt 1"):
            ray.get(raise_until.options(retry_exceptions=chosen).remote(notes, 3))

    def test_errors_use_up_the_same_budget(self, notes: Path) -> None:
        with pytest.raises(Special, match="attempt 2"):
            ray.get(raise_until.options(retry_exceptions=True, max_retries=1).remote(notes, 9))

    def test_sys_exit_is_the_death_of_the_worker(self, notes: Path) -> None:
        @ray.remote(max_retries=1)
        def leave() -> int:
            here = count(notes)
            if here < 2:
                raise SystemExit(0)
            return here

        assert ray.get(leave.remote()) == 2


@ray.remote(max_restarts=-1, max_task_retries=2)
class Flaky:
    def __init__(self) -> None:
        self.reconstructed = ray.get_runtime_context().was_current_actor_reconstructed

    def was_restarted(self) -> bool:
        return bool(self.reconstructed)

    def die_until(self, notes: Path, attempt: int) -> int:
        here = count(notes)
        if here < attempt:
            os._exit(1)
        return here

    def raise_until(self, notes: Path, attempt: int) -> int:
        here = count(notes)
        if here < attempt:
            raise Special(f"attempt {here}")
        return here

    @ray.method(max_task_retries=5, retry_exceptions=[Special])
    def raise_often(self, notes: Path, attempt: int) -> int:
        return self.raise_until(notes, attempt)

    @ray.method(max_task_retries=0)
    def die_once(self, notes: Path) -> int:
        return self.die_until(notes, 2)


class TestMethods:
    def test_across_restarts(self, notes: Path) -> None:
        actor = Flaky.remote()
        assert not ray.get(actor.was_restarted.remote())
        assert ray.get(actor.die_until.remote(notes, 3)) == 3
        assert ray.get(actor.was_restarted.remote())

    def test_the_call_may_have_fewer(self, notes: Path) -> None:
        with pytest.raises(exceptions.ActorUnavailableError, match="may or may not have been executed"):
            ray.get(Flaky.remote().die_until.options(max_task_retries=1).remote(notes, 9))
        assert len(notes.read_text()) == 2

    def test_the_method_may_have_none(self, notes: Path) -> None:
        with pytest.raises(exceptions.ActorUnavailableError):
            ray.get(Flaky.remote().die_once.remote(notes))

    def test_errors_only_when_chosen(self, notes: Path) -> None:
        actor = Flaky.remote()
        with pytest.raises(Special, match="attempt 1"):
            ray.get(actor.raise_until.remote(notes, 2))
        with pytest.raises(Special, match="attempt 2"):
            ray.get(actor.raise_until.options(retry_exceptions=[KeyError]).remote(notes, 9))
        assert ray.get(actor.raise_until.options(retry_exceptions=True).remote(notes, 4)) == 4
        assert ray.get(actor.raise_often.remote(notes, 9)) == 9

    def test_handles_take_the_choice_along(self, notes: Path) -> None:
        @ray.remote(num_cpus=0)
        def call(actor: Any) -> int:
            answer: int = ray.get(actor.raise_often.remote(notes, 3))
            return answer

        assert ray.get(call.remote(Flaky.remote())) == 3


class TestMaxCalls:
    def test_a_worker_ends_after_so_many_calls(self) -> None:
        @ray.remote(max_calls=2)
        def pid() -> int:
            return os.getpid()

        pids = [ray.get(pid.remote()) for _ in range(6)]
        assert max(pids.count(one) for one in pids) <= 2

    def test_none_is_lost_of_many_at_once(self) -> None:
        @ray.remote(max_calls=3, max_retries=0)
        def square(x: int) -> tuple[int, int]:
            return x * x, os.getpid()

        results = ray.get([square.remote(i) for i in range(30)])
        assert [value for value, _ in results] == [i * i for i in range(30)]
        pids = [pid for _, pid in results]
        assert max(pids.count(pid) for pid in pids) <= 3

    def test_what_the_worker_owns_outlives_its_last_call(self) -> None:
        @ray.remote(max_calls=1, max_retries=0)
        def own() -> list[Any]:
            return [ray.put("owned"), ray.remote(lambda: "started").remote()]

        refs = ray.get(own.remote())
        assert ray.get(refs) == ["owned", "started"]

    def test_tasks_with_gpus_get_a_worker_of_their_own(self) -> None:
        @ray.remote(num_gpus=0.5)
        def pid() -> int:
            return os.getpid()

        assert len({ray.get(pid.remote()) for _ in range(3)}) == 3

    def test_handlers_run(self, notes: Path) -> None:
        @ray.remote(max_calls=1)
        def register() -> None:
            import atexit

            atexit.register(notes.touch)

        from tests.polling import eventually

        ray.get(register.remote())
        assert eventually(notes.exists)

    def test_not_per_call(self) -> None:
        with pytest.raises(ValueError, match="max_calls"):
            die_until.options(max_calls=1)
