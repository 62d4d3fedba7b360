"""No process outlives its node, however the node ends; only what made a session of its own may."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.integration.drivers import Driver, session_files
from tests.polling import eventually
from tests.processes import is_alive

PROGRAM = """
import atexit, os, subprocess, time
import runtime as ray
ray.init(num_cpus=2)

@ray.remote
def started():
    children = [
        subprocess.Popen(["sleep", "1000"]),
        subprocess.Popen(["sh", "-c", "trap '' TERM HUP; sleep 1000 & wait; wait"]),
        subprocess.Popen(["sleep", "1000"], process_group=0),
    ]
    return os.getpid(), *(child.pid for child in children)

@ray.remote(num_cpus=0)
class Actor:
    def started(self):
        return os.getpid(), subprocess.Popen(["sleep", "1000"]).pid

    def wait(self):
        time.sleep(1000)

actor = Actor.remote()
print("pids", *ray.get(started.remote()), *ray.get(actor.started.remote()), flush=True)
"""
WAITING = "time.sleep(1000)\n"
AT_EXIT = """
atexit.register(lambda: (print("leaving", flush=True), time.sleep(1000)))
print("ready", flush=True)
time.sleep(1000)
"""
GOING_ON = """
try:
    ray.get(actor.wait.remote())
except ray.exceptions.ActorDiedError:
    print("again", *ray.get(started.remote()), flush=True)
time.sleep(1000)
"""


class Node:
    """A node with workers that have children, and its driver."""

    def __init__(self, rest: str) -> None:
        self._files = set(session_files())
        self.driver = Driver(PROGRAM + rest)
        self.pids = self.read_pids("pids ")
        zygote = psutil.Process(self.pids[0]).parent()
        agent = zygote.parent() if zygote is not None else None
        assert zygote is not None
        assert agent is not None
        self.zygote, self.agent = zygote, agent
        self.pids += [child.pid for child in zygote.children(recursive=True)]
        assert all(map(is_alive, self.pids))

    def read_pids(self, line: str) -> list[int]:
        return [int(pid) for pid in self.driver.line(line).split()]

    def has_gone(self) -> bool:
        """Whether its processes and files go."""
        pids = [*self.pids, self.zygote.pid, self.agent.pid]
        return eventually(lambda: not any(map(is_alive, pids))) and eventually(
            lambda: set(session_files()) <= self._files
        )

    def close(self) -> None:
        for process in (self.zygote, self.agent):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self.driver.close()


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node(getattr(request, "param", WAITING))
    yield made
    made.close()


def test_sigterm(node: Node) -> None:
    node.agent.terminate()
    assert node.has_gone()


def test_sigterm_while_the_zygote_is_stopped(node: Node) -> None:
    node.zygote.suspend()
    node.agent.terminate()
    assert node.has_gone()


def test_sigterm_again_and_again(node: Node) -> None:
    def is_gone() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            node.agent.terminate()
        return not is_alive(node.agent.pid)

    assert eventually(is_gone)
    assert node.has_gone()


def test_sigkill(node: Node) -> None:
    node.agent.kill()
    assert eventually(lambda: not any(map(is_alive, [*node.pids, node.zygote.pid])))


def test_sigkill_while_the_zygote_is_stopped(node: Node) -> None:
    node.zygote.suspend()
    node.agent.kill()
    assert eventually(lambda: not any(map(is_alive, [*node.pids, node.zygote.pid])))


@pytest.mark.parametrize("node", [GOING_ON], indirect=True)
def test_sigkill_of_the_zygote(node: Node) -> None:
    node.zygote.kill()
    assert eventually(lambda: not any(map(is_alive, node.pids)))
    again = node.read_pids("again ")
    assert all(map(is_alive, again))
    node.agent.terminate()
    assert eventually(lambda: not any(map(is_alive, again)))
    assert node.has_gone()


def test_sigkill_of_the_driver(node: Node) -> None:
    node.driver.kill()
    assert node.has_gone()


@pytest.mark.parametrize("node", [AT_EXIT], indirect=True)
def test_two_sigterms_to_the_driver_the_second_in_its_exit_handlers(node: Node) -> None:
    node.driver.line("ready")
    node.driver.process.terminate()
    node.driver.line("leaving")
    node.driver.process.terminate()
    assert node.driver.process.wait(60) == -signal.SIGTERM
    assert node.has_gone()
