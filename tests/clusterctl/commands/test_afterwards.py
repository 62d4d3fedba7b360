"""What `--stop` and `--down` of a command do, however the command ends."""

from __future__ import annotations

import pathlib
from typing import cast

import pytest
import typer

from clusterctl.api_client import ApiClient
from clusterctl.commands import afterwards, down
from clusterctl.commands.opened_cluster import OpenedCluster
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
def opened(tmp_path: pathlib.Path) -> OpenedCluster:
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    record = new_record(home, load_text(SPEC), "c.yaml")
    record.state = UP
    home.write(record)
    return OpenedCluster(home, record)


def written(opened: OpenedCluster) -> ClusterRecord:
    record = opened.home.read("c")
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
    opened: OpenedCluster, ended: list[str], how: BaseException, status: int
) -> None:
    with pytest.raises(typer.Exit) as exit, afterwards.ending(opened, stop=False, down=True):
        raise how
    assert exit.value.exit_code == status
    assert ended == ["c"]


def test_a_reader_that_goes_away_ends_the_command_and_the_cluster(
    opened: OpenedCluster, ended: list[str]
) -> None:
    with pytest.raises(BrokenPipeError), afterwards.ending(opened, stop=False, down=True):
        raise BrokenPipeError
    assert ended == ["c"]


def test_without_the_options_nothing_ends(opened: OpenedCluster, ended: list[str]) -> None:
    with pytest.raises(TimedOut), afterwards.ending(opened, stop=False, down=False):
        raise TimedOut("late")
    assert ended == []


def test_another_command_on_the_cluster_is_waited_for(
    opened: OpenedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [Busy("`up` works"), Busy("`up` works"), None]

    def busy(home: Home, cluster: ClusterRecord) -> None:
        if answer := answers.pop(0):
            raise answer

    monkeypatch.setattr(down, "end_cluster", busy)
    monkeypatch.setattr(afterwards, "_BUSY_POLL_S", 0.0)
    afterwards.ended(opened, for_good=True)
    assert capsys.readouterr().err == "`up` works; waiting for it\n"


@pytest.mark.parametrize("for_good", [True, False])
@pytest.mark.parametrize("has_next", [True, False])
def test_a_cluster_that_has_ended_has_ended_whichever_has_its_name_now(
    opened: OpenedCluster, capsys: pytest.CaptureFixture[str], has_next: bool, for_good: bool
) -> None:
    opened.home.forget("c")
    later = new_record(opened.home, load_text(SPEC), "c.yaml")
    if has_next:
        opened.home.write(later)
    afterwards.ended(opened, for_good)
    assert opened.home.read("c") == (later if has_next else None)
    assert capsys.readouterr().err == "cluster 'c' has ended already\n"


def test_a_cluster_of_the_same_name_is_not_left_to_its_head(opened: OpenedCluster) -> None:
    opened.home.forget("c")
    later = new_record(opened.home, load_text(SPEC), "c.yaml")
    opened.home.write(later)
    with pytest.raises(NotFound, match="has ended meanwhile"):
        opened.may_end_by_itself()
    assert written(opened) == later


def test_what_the_provider_cannot_do_is_refused_before(opened: OpenedCluster) -> None:
    with pytest.raises(UsageProblem, match="cannot be stopped"):
        afterwards.check(opened, stop=True, down=False)
    afterwards.check(opened, stop=False, down=True)


def test_who_stops_watching_a_job_leaves_the_end_to_the_head(opened: OpenedCluster, ended: list[str]) -> None:
    head = Head()
    with (
        pytest.raises(Interrupted, match="by itself when nothing has used it for 5 min"),
        afterwards.of_job(opened, cast(ApiClient, head), stop=False, down=True),
    ):
        raise Interrupted("job j runs on")
    assert head.told == [b'{"idle_minutes":5.0,"down":true}']
    assert written(opened).stops_itself
    assert ended == []


def test_a_job_that_is_refused_leaves_the_end_to_the_head(opened: OpenedCluster, ended: list[str]) -> None:
    head = Head()
    with (
        pytest.raises(UsageProblem) as refused,
        afterwards.of_job(opened, cast(ApiClient, head), stop=False, down=True),
    ):
        raise UsageProblem("no such option", "Leave it out.")
    assert refused.value.message == "no such option"
    assert refused.value.hint == (
        "Leave it out.\nThe cluster ends by itself when nothing has used it for 5 min."
    )
    assert len(head.told) == 1
    assert ended == []


def test_an_interrupted_submission_says_what_may_have_become_of_it(
    opened: OpenedCluster, ended: list[str]
) -> None:
    with (
        pytest.raises(Interrupted, match=r"(?s)job may have begun.*by itself when nothing has used it"),
        afterwards.of_job(opened, cast(ApiClient, Head()), stop=False, down=True),
    ):
        raise KeyboardInterrupt
    assert ended == []


@pytest.mark.parametrize("is_dead", [True, False])
def test_of_a_head_that_does_not_answer_only_a_dead_one_is_ended(
    opened: OpenedCluster, ended: list[str], monkeypatch: pytest.MonkeyPatch, is_dead: bool
) -> None:
    monkeypatch.setattr(look, "head_is_dead", lambda home, record, provider: is_dead)
    with (
        pytest.raises(typer.Exit if is_dead else Unreachable),
        afterwards.of_job(opened, cast(ApiClient, Head()), stop=False, down=True),
    ):
        raise Unreachable("the head does not answer")
    assert ended == (["c"] if is_dead else [])


def test_what_another_command_has_written_meanwhile_stays(opened: OpenedCluster) -> None:
    record = written(opened)
    record.api_url = "http://10.0.0.1:1"
    opened.home.write(record)
    opened.may_end_by_itself()
    assert written(opened).api_url == "http://10.0.0.1:1"
    assert written(opened).stops_itself
    assert opened.record == written(opened)
