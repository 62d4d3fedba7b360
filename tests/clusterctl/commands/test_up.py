"""What `up` asks before it begins, and what it does where nobody is there to answer."""

from __future__ import annotations

import pathlib

import pytest
from typer.testing import CliRunner

from clusterctl import output
from clusterctl.app import app
from clusterctl.commands.up import Agreed, _agree
from clusterctl.errors import CliError
from clusterctl.home import UP, Home, new_record
from clusterctl.launcher.costs import Costs
from clusterctl.launcher.plan import Action, Plan, Step
from clusterctl.spec.load import load_text

SPEC = "cluster_name: c\nprovider: {type: local}\nhead_node_type: h\navailable_node_types: {h: {}}\n"
MAKES = Plan((Step(Action.CREATE_HEAD),), is_new=True)
ENDS = Plan((Step(Action.STOP_DAEMONS),), asks="Programs end.")
PRICED, FREE = Costs((), False, now=1.0, most=2.0), Costs((), True)


class Person:
    """Who may be there, and says yes or no."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_there: bool, says: bool = False) -> None:
        self.asked: list[str] = []
        self._says = is_there and says
        monkeypatch.setattr(output, "somebody_is_there", lambda: is_there)
        monkeypatch.setattr(output, "confirm", self._answer)

    def _answer(self, question: str) -> bool:
        self.asked.append(question)
        return self._says


@pytest.mark.parametrize(("says", "goes_on"), [(True, True), (False, False)])
def test_what_costs_something_is_asked_about(
    monkeypatch: pytest.MonkeyPatch, says: bool, goes_on: bool
) -> None:
    person = Person(monkeypatch, True, says)
    if goes_on:
        _agree(MAKES, PRICED, Agreed.NOTHING)
    else:
        with pytest.raises(CliError, match="nothing was done"):
            _agree(MAKES, PRICED, Agreed.NOTHING)
    assert person.asked == ["Go on?"]


def test_nobody_is_asked_about_what_is_free_or_agreed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(monkeypatch, True)
    _agree(MAKES, FREE, Agreed.NOTHING)
    _agree(MAKES, None, Agreed.NOTHING)
    _agree(MAKES, PRICED, Agreed.ALL)
    _agree(ENDS, PRICED, Agreed.ALL)
    assert person.asked == []


def test_without_a_terminal_costs_are_no_obstacle_and_ends_are(monkeypatch: pytest.MonkeyPatch) -> None:
    Person(monkeypatch, False)
    _agree(MAKES, PRICED, Agreed.NOTHING)
    with pytest.raises(CliError, match="Programs end"):
        _agree(ENDS, None, Agreed.NOTHING)


@pytest.mark.parametrize("is_there", [True, False])
def test_start_agrees_to_costs_and_to_no_end(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    person = Person(monkeypatch, is_there, says=False)
    _agree(MAKES, PRICED, Agreed.COSTS)
    assert person.asked == []
    with pytest.raises(CliError, match="Programs end"):
        _agree(ENDS, PRICED, Agreed.COSTS)


def test_a_rehearsal_forgets_no_cluster_that_has_ended_by_itself(tmp_path: pathlib.Path) -> None:
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    file = tmp_path / "c.yaml"
    file.write_text(SPEC)
    record = new_record(home, load_text(SPEC), str(file))
    record.state, record.stops_itself, record.api_url = UP, True, "http://127.0.0.1:1"
    home.write(record)
    home.new_secret("c")
    cli = CliRunner(env={"CLUSTERCTL_HOME": str(home.root), "COLUMNS": "200"})
    ran = cli.invoke(app, ["up", "--dry-run", str(file)])
    assert ran.exit_code == 0, ran.output
    assert Action.CREATE_HEAD.value in ran.output
    assert home.read("c") == record
