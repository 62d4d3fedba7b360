"""`clusterctl simulate` from the file to the text, the JSON and the picture."""

from __future__ import annotations

import json
import pathlib
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from clusterctl.app import app

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "simulate"
SPEC = str(EXAMPLE / "cluster.yaml")
DAY = str(EXAMPLE / "day.json")


@pytest.fixture
def cli(tmp_path: pathlib.Path) -> CliRunner:
    return CliRunner(env={"CLUSTERCTL_HOME": str(tmp_path / "h"), "COLUMNS": "100"})


def simulate(cli: CliRunner, *words: str, demand: str = DAY) -> Result:
    return cli.invoke(app, ["simulate", SPEC, "--demand", demand, *words])


def summary(cli: CliRunner, *words: str, demand: str = DAY) -> dict[str, Any]:
    result = simulate(cli, "--json", *words, demand=demand)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)["summary"]
    return found


@pytest.fixture
def burst(tmp_path: pathlib.Path) -> str:
    file = tmp_path / "burst.json"
    file.write_text('{"name": "burst", "tasks": [{"count": 80, "duration_s": 100}]}')
    return str(file)


def test_the_example_is_rehearsed_and_drawn(cli: CliRunner, tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "day.svg"
    result = simulate(cli, "--svg", str(picture), "--events")
    assert result.exit_code == 0, result.output
    for words in (
        "'a working day' on cluster 'rehearsal'",
        "came to rest",
        "95 % within",
        "never served:\n  2 x {CPU: 64}: the nearest node type is 'gpu': CPU 64 wanted, 16 there",
        "1:15:00  spot loss of cpu",
        "requested explicitly",
    ):
        assert words in result.stdout
    assert (
        len(result.stdout.split("came to rest")[0].split("from one time to the next")[1].splitlines()) <= 23
    )
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_the_same_seed_prints_the_same_and_another_one_something_else(cli: CliRunner) -> None:
    first, again = simulate(cli, "--until", "9000").stdout, simulate(cli, "--until", "9000").stdout
    assert first == again
    assert simulate(cli, "--until", "9000", "--seed", "2").stdout != first


def test_sizes_and_prices_can_be_compared(cli: CliRunner, burst: str) -> None:
    large = summary(cli, "--price", "cpu=1", demand=burst)
    small = summary(cli, "--price", "cpu=1", "--max-workers", "cpu=2", "--max-workers", "gpu=0", demand=burst)
    dear = summary(cli, "--price", "cpu=3", demand=burst)
    slow = summary(cli, "--price", "cpu=1", "--boot-s", "400", "--setup-s", "0", demand=burst)
    assert small["waited"]["all"]["mean_s"] > large["waited"]["all"]["mean_s"]
    assert small["cost"] < large["cost"]
    assert small["most_machines"] == 2
    assert summary(cli, "--max-workers", "3", demand=burst)["most_machines"] == 3
    assert summary(cli, "--max-workers", "0", "--max-workers", "cpu=0", demand=burst)["finished"] == {
        "task": 80
    }
    assert dear["cost"] == pytest.approx(3 * large["cost"], abs=0.01)
    assert slow["waited"]["all"]["p50_s"] > 400 > large["waited"]["all"]["p50_s"]


def test_json_has_the_timeline_and_the_events(cli: CliRunner, burst: str) -> None:
    document = json.loads(simulate(cli, "--json", demand=burst).stdout)
    assert document["timeline"][-1]["queue"] == {}
    assert max(sample["working"] for sample in document["timeline"]) > 10
    assert any("waiting work" in event["text"] or "create" in event["text"] for event in document["events"])
    assert document["summary"]["finished"] == {"task": 80}


def test_unknown_prices_are_said_so(cli: CliRunner, burst: str) -> None:
    assert "cost         unknown: give --price" in simulate(cli, demand=burst).stdout


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--demand", "nowhere.json"], 3, "there is no file nowhere.json"),
        (["--max-workers", "many"], 2, "--max-workers many"),
        (["--max-workers", "gpu=1.5"], 2, "--max-workers gpu=1.5"),
        (["--max-workers", "0"], 2, "the types' min_workers are 1 together"),
        (["--price", "tpu=3"], 2, "there is no node type 'tpu'"),
        (["--price", "3"], 2, "there is no node type ''"),
        (["--price", "gpu=-3"], 2, "--price gpu=-3"),
    ],
)
def test_wrong_arguments_are_explained(cli: CliRunner, words: list[str], status: int, says: str) -> None:
    result = simulate(cli, *words)
    assert result.exit_code == status
    assert says in result.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"tasks": [{"count": 1, "duration": 3}]}',
            "tasks[0]: unknown key 'duration'; did you mean 'duration_s'?",
        ),
        ('{"faults": [{"kind": "stockout", "node_type": "cpus"}]}', "there is no node type 'cpus'"),
        ("tasks:", "this is not JSON"),
    ],
)
def test_a_wrong_trace_is_explained(cli: CliRunner, tmp_path: pathlib.Path, text: str, says: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    result = simulate(cli, demand=str(file))
    assert result.exit_code == 2
    assert f"{file}: " in result.stderr
    assert says in result.stderr
