"""What user code finds in the process that it runs in, and how drivers end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.under_test import NAME, ray

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def connected(session: None) -> None:
    return


@ray.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@ray.remote
class Holder:
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)


def run_driver(program: str, errors: bool = False) -> list[str]:
    """The lines that another driver prints: `ray` is imported there, and `address` names the cluster.

    Args:
        errors: those on standard error instead.
    """
    start = f"import {NAME} as ray\naddress = {ray.get_runtime_context().gcs_address!r}\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return (done.stderr if errors else done.stdout).splitlines()


@pytest.mark.parametrize(("cpus", "threads"), [(None, "1"), (0, "1"), (0.5, "1"), (2, "2"), (3, "3")])
def test_libraries_start_as_many_threads_as_a_task_has_cpus(cpus: float | None, threads: str) -> None:
    options: dict[str, Any] = {} if cpus is None else {"num_cpus": cpus}
    assert ray.get(variable.options(**options).remote("OMP_NUM_THREADS")) == threads
    assert ray.get(Holder.options(**options).remote().variable.remote("OMP_NUM_THREADS")) == threads


def test_the_number_of_threads_that_the_user_says_counts() -> None:
    environment = {"env_vars": {"OMP_NUM_THREADS": "7"}}
    assert ray.get(variable.options(num_cpus=2, runtime_env=environment).remote("OMP_NUM_THREADS")) == "7"
    assert ray.get(variable.options(num_cpus=2).remote("OMP_NUM_THREADS")) == "2"
    assert ray.get(variable.remote("MKL_NUM_THREADS")) is None


def test_files_of_tasks_have_the_usual_mode(tmp_path: Path) -> None:
    @ray.remote
    def write(path: str) -> int:
        Path(path).write_text("x")
        return os.stat(path).st_mode & 0o777

    mine = tmp_path / "mine"
    mine.write_text("x")
    assert ray.get(write.remote(str(tmp_path / "its"))) == mine.stat().st_mode & 0o777


def test_shutdown_in_a_task_is_no_harm() -> None:
    @ray.remote
    def shut_down() -> int:
        ray.shutdown()
        return 1

    assert ray.get(shut_down.remote()) == 1
    assert ray.get(variable.remote("no such variable")) is None


def test_handlers_of_the_programs_end_find_the_cluster() -> None:
    assert run_driver("""
        import atexit
        atexit.register(lambda: print("before", ray.get(f.remote())))
        ray.init(address, log_to_driver=False)
        atexit.register(lambda: print("after", ray.get(f.remote())))

        @ray.remote
        def f():
            return 1
        """) == ["after 1", "before 1"]


def test_objects_that_die_with_the_interpreter_may_ask_whether_there_is_a_cluster() -> None:
    assert run_driver("""
        ray.init(address, log_to_driver=False)

        class Late:
            def __del__(self):
                print("late", ray.is_initialized(), ray.shutdown())

        late = Late()
        late.ref = ray.put(1)
        """) == ["late False None"]


def test_the_driver_is_told_of_crashes_and_of_actors_that_were_not_made() -> None:
    lines = run_driver(
        """
        import os, time
        ray.init(address)

        @ray.remote(max_retries=0)
        def crash():
            os._exit(3)

        @ray.remote
        class Broken:
            def __init__(self):
                raise ValueError("no luck")

            def method(self):
                pass

        @ray.remote
        def sleep():
            time.sleep(100)

        for make in (crash.remote, lambda: Broken.remote().method.remote()):
            try:
                ray.get(make())
            except ray.exceptions.RayError:
                pass
        cancelled = sleep.remote()
        ray.wait([cancelled], timeout=0.5)
        ray.cancel(cancelled, force=True)
        ray.wait([cancelled])
        """,
        errors=True,
    )
    crashes = [line for line in lines if "A worker died or was killed while executing a task" in line]
    assert len(crashes) == 1
    assert any("(Broken pid=" in line and "Exception raised in creation task" in line for line in lines)
    assert any("ValueError: no luck" in line for line in lines)


@pytest.mark.parametrize(
    ("setting", "expected"), [(None, 15), ("3", 3), ("100", 19)], ids=["the default", "as set", "the most"]
)
def test_workers_give_way_to_other_processes(setting: str | None, expected: int) -> None:
    program = f"""
    import os
    os.environ.pop("RAY_worker_niceness", None)
    if {setting!r}:
        os.environ["RAY_worker_niceness"] = {setting!r}
    os.environ.pop("RAY_ADDRESS", None)
    ray.init(address="local", num_cpus=1)

    @ray.remote
    class Actor:
        def niceness(self):
            return os.nice(0)

    print(ray.get([ray.remote(lambda: os.nice(0)).remote(), Actor.remote().niceness.remote()]), os.nice(0))
    """
    own = os.nice(0)
    expected = min(own + expected, 19)
    assert run_driver(program) == [f"[{expected}, {expected}] {own}"]
