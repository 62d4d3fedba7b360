"""What restarts a head, and what it does when the head does not come back."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from clusterctl import processes
from clusterctl.errors import CliError
from clusterctl.head import keeper
from clusterctl.head.first import with_ports_of_before
from clusterctl.head.session import turn
from clusterctl.spec.definition import Autostop
from clusterctl.startup.config import HeadConfig
from clusterctl.startup.record import DaemonRecord, forget, read, remember, running


class Over(Exception):
    """The machine is down, or nobody waits any more."""


@pytest.fixture
def session(tmp_path: Path) -> str:
    """The folder of a head that has crashed."""
    with subprocess.Popen(["true"]) as process:
        pid = process.pid
    (tmp_path / "logs").mkdir()
    record = DaemonRecord(
        pid=pid, start_ticks=1, role="head", control_address="127.0.0.1:4321", api_url="http://127.0.0.1:1234"
    )
    remember(str(tmp_path), record)
    return str(tmp_path)


def config_file(session: str, **words: object) -> str:
    path = f"{session}/head.json"
    Path(path).write_bytes(HeadConfig(cluster_id="c", cluster_name="c", **words).to_json())  # type: ignore[arg-type]
    return path


def test_a_head_that_does_not_come_back_costs_no_longer_than_autostop_allows(session: str) -> None:
    def shut_down() -> NoReturn:
        raise Over

    delays: list[float] = []
    policy = Autostop(idle_minutes=0.0)
    config = config_file(session, shutdown_ends=True, autostop=policy, autostop_is_set=True)
    with pytest.raises(Over):  # there is no secret, so the real head cannot start
        keeper.keep(config, f"{session}/secret", session, delays.append, shut_down)
    assert delays == [0.0]
    record = running(session)
    assert record is not None
    assert record.pid == os.getpid(), "while it restarts, the node lives by the keeper"


def test_restarts_become_rarer_and_without_autostop_go_on(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> NoReturn:
        raise CliError("no")

    def sleep(delay_s: float) -> None:
        delays.append(delay_s)
        if len(delays) == 10:
            raise Over

    delays: list[float] = []
    monkeypatch.setattr(keeper, "spawn_head", fails)
    config = config_file(session, shutdown_ends=True)
    with pytest.raises(Over):
        keeper.keep(config, f"{session}/secret", session, sleep, lambda: pytest.fail("it stays"))
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_an_end_that_was_meant_is_one(session: str) -> None:
    forget(session)
    assert keeper.keep(config_file(session), "", session, lambda _: pytest.fail("it does not wait")) == 0
    assert read(session) is None


def test_a_keeper_does_not_write_again_what_stop_removes(session: str) -> None:
    """After a reboot the boot entry starts a keeper while `start --stop` may be under way."""
    ended: list[int | str | None] = []

    def works() -> None:
        try:
            keeper.keep(config_file(session), "", session, lambda _: pytest.fail("it does not wait"))
        except SystemExit as end:
            ended.append(end.code)

    with turn(session):
        thread = threading.Thread(target=works)
        thread.start()
        thread.join(0.3)  # it has seen a record, and waits for its turn
        assert thread.is_alive()
        assert read(session) is not None
        forget(session)
    thread.join(10)
    assert ended == [0]
    assert read(session) is None


def test_a_keeper_leaves_a_head_that_another_has_started(session: str) -> None:
    ends: list[int] = []
    with subprocess.Popen(["sleep", "60"]) as other:
        with turn(session):
            thread = threading.Thread(
                target=lambda: ends.append(
                    keeper.keep(config_file(session), "", session, lambda _: pytest.fail("it does not wait"))
                )
            )
            thread.start()
            thread.join(0.3)
            ticks = processes.start_ticks(other.pid) or -1
            started = DaemonRecord(pid=other.pid, start_ticks=ticks, role="head", control_address="")
            remember(session, started)
        thread.join(0.3)
        assert read(session) == started
        forget(session)
        other.kill()
    thread.join(10)
    assert ends == [0]


def test_a_restarted_head_has_the_ports_of_before(session: str) -> None:
    config = with_ports_of_before(HeadConfig(cluster_id="c", cluster_name="c"), session)
    assert (config.control_port, config.api_port) == (4321, 1234)
    named = with_ports_of_before(HeadConfig(cluster_id="c", cluster_name="c", api_port=99), session)
    assert named.api_port == 99
    forget(session)
    assert with_ports_of_before(HeadConfig(cluster_id="c", cluster_name="c"), session).api_port == 0


def test_a_record_of_before_a_reboot_names_nothing(tmp_path: Path) -> None:
    ticks = processes.start_ticks(os.getpid()) or -1
    record = DaemonRecord(pid=os.getpid(), start_ticks=ticks, role="head", control_address="")
    remember(str(tmp_path), record)
    assert running(str(tmp_path)) is not None
    remember(str(tmp_path), msgspec.structs.replace(record, boot_id="another"))
    assert running(str(tmp_path)) is None
