"""What `up` finds: a head that cannot be reached is never taken for dead."""

from __future__ import annotations

import os
import pathlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autoscaler.provider import (
    Capabilities,
    CommandResult,
    Machine,
    MachineState,
    MachineTags,
    ShellError,
    ShellTimedOut,
)
from clusterctl import home as homes
from clusterctl.api_client import Answer
from clusterctl.errors import NotFound
from clusterctl.home import ClusterRecord, Home
from clusterctl.launcher import look, reach
from clusterctl.launcher.plan import Change, Facts, Health
from clusterctl.launcher.runtimes.ray import Ray
from clusterctl.shell.forwarding import Tunnel, _Loopback, forwarded
from clusterctl.spec.load import load_text
from tests.clusterctl.answering import answering

TEXT = "cluster_name: c\nprovider: {type: local}\nhead_node_type: h\navailable_node_types: {h: {}, w: {}}\n"
HEAD = Machine("h1", MachineState.RUNNING, "h", {MachineTags.ROLE: MachineTags.HEAD}, address="127.0.0.1")
WORKER = Machine("w1", MachineState.RUNNING, "w", {MachineTags.ROLE: MachineTags.WORKER})
CLOSED = "http://127.0.0.1:1"
ENDED = "daemon\nlooked\n"
RUNS = "daemon\nprocess 7\nlooked\n"


@dataclass
class Platform:
    """Machines whose shells answer, or do not."""

    listed: list[Machine] = field(default_factory=list)
    answers: bool = True
    says: str = ENDED
    tunnels: bool = True
    lists: int = 0
    capabilities: Capabilities = field(default_factory=Capabilities)
    port: int = 0

    def list(self) -> list[Machine]:
        self.lists += 1
        return self.listed

    def clusters(self, name: str) -> list[str]:
        return ["c-other"] if name == "strange" else []

    def shell(self, machine: Machine) -> Any:
        return self

    def run(self, command: str, timeout_s: float) -> CommandResult:
        if not self.answers:
            raise ShellTimedOut("no route to host")
        return CommandResult(0, self.says)

    @contextmanager
    def forward(
        self, port: int, on_tunnel: Callable[[ShellError | None], None] | None = None
    ) -> Iterator[int]:
        def tunnel() -> Tunnel:
            if not self.tunnels:
                raise ShellError("administratively prohibited")
            return _Loopback(port)

        with forwarded(tunnel, on_tunnel=on_tunnel) as here:
            yield self.port or here

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_way_stays() -> Iterator[None]:
    yield
    reach._forwards.close()
    reach._ways.clear()


@pytest.fixture
def home(tmp_path: pathlib.Path) -> Home:
    return Home.find({"CLUSTERCTL_HOME": str(tmp_path)})


def record_of(home: Home, api_url: str, state: str = homes.UP) -> ClusterRecord:
    record = homes.new_record(home, load_text(TEXT), "c.yaml")
    record.api_url, record.state, record.head, record.cluster_id = api_url, state, HEAD, "c-1"
    home.write(record)
    home.new_secret(record.name)
    return record


def facts(
    home: Home, platform: Platform, record: ClusterRecord, text: str = TEXT, is_known: bool = True
) -> Facts:
    cluster = SimpleNamespace(
        home=home,
        spec=load_text(text),
        record=record,
        is_known=is_known,
        provider=platform,
        provider_of=lambda cluster_id: platform,
    )
    return look.facts(cast(Any, cluster))


def test_a_head_that_answers_is_asked_and_nothing_is_listed(home: Home) -> None:
    platform = Platform([HEAD])
    with answering(200) as url:
        found = facts(home, platform, record_of(home, url))
    assert (found.health, found.spec_changed, platform.lists) == (Health.ANSWERS, False, 0)


def test_a_head_that_does_not_know_the_secret(home: Home) -> None:
    with answering(401, b'{"error": "the secret is wrong"}') as url:
        assert facts(home, Platform([HEAD]), record_of(home, url)).health is Health.DENIED


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b""),
        (200, b"[]"),
        (200, b'{"version": "2", "ray_version": "2.60"}'),
        (400, b"<html>The plain HTTP request was sent to HTTPS port"),
        (400, b'{"error": "what?"}'),
        (403, b"<html>Forbidden"),
        (404, b'{"error": "what?"}'),
        (500, b"Internal Server Error"),
        (502, b"<html>Bad Gateway"),
        (503, b"<html>Service Unavailable"),
        (503, b'{"detail": "starting"}'),
    ],
)
def test_another_program_at_the_heads_port_is_no_head(home: Home, status: int, body: bytes) -> None:
    with answering(status, body) as url:
        found = facts(home, Platform([HEAD], says=RUNS), record_of(home, url))
        assert found.health is Health.CUT_OFF
        assert "another program" in found.trouble
        assert facts(home, Platform([HEAD]), record_of(home, url)).health is Health.DEAD


@pytest.mark.parametrize("status", [503, 504])
def test_a_head_that_answers_that_it_cannot_is_no_dead_one(home: Home, status: int) -> None:
    with answering(status, b'{"error": "the control store: it is coming back"}') as url:
        assert facts(home, Platform([HEAD]), record_of(home, url)).health is Health.SLOW


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (Answer(200, {}, b'{"version": "4", "ray_version": "2.60.0"}'), Health.ANSWERS),
        (Answer(200, {}, b'{"cluster_id": "c-1"}'), Health.SILENT),
        (Answer(401, {}, b"Unauthorized"), Health.DENIED),
        (Answer(500, {}, b"Internal Server Error: a module is gone"), Health.SLOW),
        (Answer(502, {}, b"<html>Bad Gateway"), Health.SILENT),
    ],
)
def test_rays_dashboard_is_known_by_its_version(answer: Answer, health: Health) -> None:
    assert Ray().health(answer, "c-1") is health


def test_without_the_secret_nothing_is_planned(home: Home) -> None:
    with answering(200) as url:
        record = record_of(home, url)
        os.unlink(home.secret_file(record.name))
        with pytest.raises(NotFound, match="secret of cluster 'c' is gone"):
            facts(home, Platform([WORKER, HEAD]), record)


def test_a_head_is_dead_when_its_machine_proves_it(home: Home) -> None:
    found = facts(home, Platform([WORKER, HEAD]), record_of(home, CLOSED))
    assert (found.health, found.head_id, found.machines) == (Health.DEAD, "h1", ("w1", "h1"))
    assert found.live == ()


def test_workers_that_may_run_are_told_of(home: Home) -> None:
    platform = Platform([WORKER], answers=False)
    assert facts(home, platform, record_of(home, CLOSED)).live == ("w1",), (
        "its head is gone, and it is cut off"
    )


def test_a_head_that_runs_is_not_dead_where_no_tunnel_leads_to_it(home: Home) -> None:
    platform = Platform(
        [WORKER, HEAD], says=RUNS, tunnels=False, capabilities=Capabilities(forward_ports=True)
    )
    found = facts(home, platform, record_of(home, CLOSED))
    assert found.health is Health.CUT_OFF
    assert "process 7" in found.trouble
    assert "administratively prohibited" in found.trouble
    assert not look.head_is_dead(home, record_of(home, CLOSED), cast(Any, platform))


def test_a_machine_that_cannot_tell_what_runs_proves_nothing(home: Home) -> None:
    found = facts(home, Platform([WORKER, HEAD], says="sh: grep: not found"), record_of(home, CLOSED))
    assert found.health is Health.CUT_OFF
    assert "grep: not found" in found.trouble


def test_a_head_whose_machine_does_not_answer_either_is_cut_off(home: Home) -> None:
    found = facts(home, Platform([HEAD], answers=False), record_of(home, CLOSED))
    assert found.health is Health.CUT_OFF
    assert "no route" in found.trouble


def test_a_stopped_head_that_others_started_is_asked(home: Home) -> None:
    with answering(200, b'{"cluster_id": "c-1"}') as url:
        found = facts(home, Platform([HEAD], says=RUNS), record_of(home, url, homes.STOPPED))
    assert found.health is Health.ANSWERS


@pytest.mark.parametrize(("answers", "health"), [(True, Health.SLOW), (False, Health.CUT_OFF)])
def test_an_api_that_does_not_answer_in_time_is_slow_if_its_machine_answers(
    home: Home, monkeypatch: pytest.MonkeyPatch, answers: bool, health: Health
) -> None:
    monkeypatch.setattr(look, "_ANSWER_S", 0.1)
    platform = Platform([HEAD], answers=answers, capabilities=Capabilities(forward_ports=True))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        platform.port = silent.getsockname()[1]
        found = facts(home, platform, record_of(home, f"http://127.0.0.1:{platform.port}"))
    assert found.health is health


def test_a_machine_that_is_stopped_or_gone_is_not_asked(home: Home) -> None:
    for state in (MachineState.STOPPED, MachineState.STOPPING):
        found = facts(home, Platform([replace(HEAD, state=state)], answers=False), record_of(home, CLOSED))
        assert (found.health, found.head_stopped) == (Health.DEAD, True)
    assert facts(home, Platform([], answers=False), record_of(home, CLOSED)).head_id == ""


def test_a_head_that_was_started_by_others_is_remembered_where_it_is_now(home: Home) -> None:
    record = record_of(home, CLOSED)
    record.head = replace(HEAD, address="127.0.0.9")
    facts(home, Platform([HEAD], says=RUNS), record)
    assert record.head == HEAD


def test_a_stopped_cluster_is_not_asked(home: Home) -> None:
    with answering(200) as url:
        stopped = Platform([replace(HEAD, state=MachineState.STOPPED)])
        found = facts(home, stopped, record_of(home, url, homes.STOPPED))
    assert (found.health, found.record_state) == (Health.UNKNOWN, homes.STOPPED)


def test_what_changed_in_the_spec(home: Home) -> None:
    with answering(200) as url:
        record = record_of(home, url)
        assert facts(home, Platform(), record, TEXT + "max_workers: 3\n").change is Change.NOTHING
        assert facts(home, Platform(), record, TEXT + "setup_commands: [x]\n").change is Change.SETUP


def test_a_cluster_that_nobody_remembers_is_found_by_its_tags(home: Home) -> None:
    text = TEXT.replace("cluster_name: c", "cluster_name: strange")
    record = homes.new_record(home, load_text(text), "c.yaml")
    found = facts(home, Platform([WORKER]), record, text, is_known=False)
    assert (found.record_state, found.health, found.strangers) == ("", Health.UNKNOWN, ("w1",))
