"""What `--stop` and `--down` of a command do, however the command ends."""

from __future__ import annotations

import pathlib
from typing import cast

import pytest
import typer

from clusterctl.api_client import ApiClient
from clusterctl.commands import afterwards, down
from clusterctl.commands.session import Session
from clusterctl.errors import Busy, CliError, Interrupted, NotFound, TimedOut, Unreachable, UsageProblem
from clusterctl.home import UP, ClusterRecord, Home, new_record
from clusterctl.launcher import look
from clusterctl.spec.load import load_text

SPEC = (
    "cluster_name: c\nprovider: {type: ssh, head: 10.0.0.1}\nhead_node_type: h\n"
    "available_node_types: {h: {resources: {CPU: 1}}}\n"
)


class Head:
    """An API that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def request(self, method: str, path: str, *, body: bytes, patience_s: float) -> None:
        assert (method, path) == ("PUT", "/api/autostop")
        self.told.append(body)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clusters that `down` was told to end."""
    names: list[str] = []
    monkeypatch.setattr(down, "end_cluster", lambda home, cluster: names.append(cluster.name))
    return names


@pytest.fixture
def session(tmp_path: pathlib.Path) -> Session:
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    record = new_record(home, load_text(SPEC), "c.yaml")
    record.state = UP
    home.write(record)
    return Session(home, record)


def written(session: Session) -> ClusterRecord:
    record = session.home.read("c")
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (TimedOut("late"), 7),
        (CliError("the connection was lost"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_cluster_ends_however_the_command_does(
    session: Session, ended: list[str], how: BaseException, status: int
) -> None:
    with pytest.raises(typer.Exit) as exit, afterwards.ending(session, stop=False, down=True):
        raise how
    assert exit.value.exit_code == status
    assert ended == ["c"]


def test_a_reader_that_goes_away_ends_the_command_and_the_cluster(session: Session, ended: list[str]) -> None:
    with pytest.raises(BrokenPipeError), afterwards.ending(session, stop=False, down=True):
        raise BrokenPipeError
    assert ended == ["c"]


def test_without_the_options_nothing_ends(session: Session, ended: list[str]) -> None:
    with pytest.raises(TimedOut), afterwards.ending(session, stop=False, down=False):
        raise TimedOut("late")
    assert ended == []


def test_another_command_on_the_cluster_is_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [Busy("`up` works"), Busy("`up` works"), None]

    def busy(home: Home, cluster: ClusterRecord) -> None:
        if answer := answers.pop(0):
            raise answer

    monkeypatch.setattr(down, "end_cluster", busy)
    monkeypatch.setattr(afterwards, "_BUSY_POLL_S", 0.0)
    afterwards.ended(session, for_good=True)
    assert capsys.readouterr().err == "`up` works; waiting for it\n"


@pytest.mark.parametrize("for_good", [True, False])
@pytest.mark.parametrize("has_next", [True, False])
def test_a_cluster_that_has_ended_has_ended_whichever_has_its_name_now(
    session: Session, capsys: pytest.CaptureFixture[str], has_next: bool, for_good: bool
) -> None:
    session.home.forget("c")
    later = new_record(session.home, load_text(SPEC), "c.yaml")
    if has_next:
        session.home.write(later)
    afterwards.ended(session, for_good)
    assert session.home.read("c") == (later if has_next else None)
    assert capsys.readouterr().err == "cluster 'c' has ended already\n"


def test_a_cluster_of_the_same_name_is_not_left_to_its_head(session: Session) -> None:
    session.home.forget("c")
    later = new_record(session.home, load_text(SPEC), "c.yaml")
    session.home.write(later)
    with pytest.raises(NotFound, match="has ended meanwhile"):
        session.may_end_by_itself()
    assert written(session) == later


def test_what_the_provider_cannot_do_is_refused_before(session: Session) -> None:
    with pytest.raises(UsageProblem, match="cannot be stopped"):
        afterwards.check(session, stop=True, down=False)
    afterwards.check(session, stop=False, down=True)


def test_who_stops_watching_a_job_leaves_the_end_to_the_head(session: Session, ended: list[str]) -> None:
    head = Head()
    with (
        pytest.raises(Interrupted, match="by itself when nothing has used it for 5 min"),
        afterwards.of_job(session, cast(ApiClient, head), stop=False, down=True),
    ):
        raise Interrupted("job j runs on")
    assert head.told == [b'{"idle_minutes":5.0,"down":true}']
    assert written(session).stops_itself
    assert ended == []


def test_a_job_that_is_refused_leaves_the_end_to_the_head(session: Session, ended: list[str]) -> None:
    head = Head()
    with (
        pytest.raises(UsageProblem) as refused,
        afterwards.of_job(session, cast(ApiClient, head), stop=False, down=True),
    ):
        raise UsageProblem("no such option", "Leave it out.")
    assert refused.value.message == "no such option"
    assert refused.value.hint == (
        "Leave it out.\nThe cluster ends by itself when nothing has used it for 5 min."
    )
    assert len(head.told) == 1
    assert ended == []


def test_an_interrupted_submission_says_what_may_have_become_of_it(
    session: Session, ended: list[str]
) -> None:
    with (
        pytest.raises(Interrupted, match=r"(?s)job may have begun.*by itself when nothing has used it"),
        afterwards.of_job(session, cast(ApiClient, Head()), stop=False, down=True),
    ):
        raise KeyboardInterrupt
    assert ended == []


@pytest.mark.parametrize("is_dead", [True, False])
def test_of_a_head_that_does_not_answer_only_a_dead_one_is_ended(
    session: Session, ended: list[str], monkeypatch: pytest.MonkeyPatch, is_dead: bool
) -> None:
    monkeypatch.setattr(look, "head_is_dead", lambda home, record, provider: is_dead)
    with (
        pytest.raises(typer.Exit if is_dead else Unreachable),
        afterwards.of_job(session, cast(ApiClient, Head()), stop=False, down=True),
    ):
        raise Unreachable("the head does not answer")
    assert ended == (["c"] if is_dead else [])


def test_what_another_command_has_written_meanwhile_stays(session: Session) -> None:
    record = written(session)
    record.api_url = "http://10.0.0.1:1"
    session.home.write(record)
    session.may_end_by_itself()
    assert written(session).api_url == "http://10.0.0.1:1"
    assert written(session).stops_itself
    assert session.record == written(session)
