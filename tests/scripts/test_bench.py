"""Each benchmark still runs, scaled down, and prints the line that the report is made of. What it measures is not
judged here."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.testbed import sshd

BENCH = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench"

FOLDER = "a folder of the test's own"
SMALL = {
    "engine": [
        "engine.py", "--only", "by one", "--rounds", "1", "--seconds", "0.01",
    ],
    "demand": ["demand.py", "--scale", "0.001"],
    "autoscaler": ["autoscaler.py", "--case", "tick, 1,000 settled"],
    "quality": ["quality.py", "--only", "gangs: "],
    "rehearsal": ["rehearsal.py", "--only", "equal"],
    "scale tasks": ["scale.py", "--only", "tasks", "--tasks", "100"],
    "scale objects": ["scale.py", "--only", "objects", "--objects", "20"],
    "scale returns": ["scale.py", "--only", "returns", "--returns", "10"],
    "scale actors": ["scale.py", "--only", "actors", "--actors", "2"],
    "scale array": ["scale.py", "--only", "array", "--gib", "0.01"],
    "contention drivers": ["contention.py", "--only", "drivers", "--seconds", "0.1"],
    "contention mix": ["contention.py", "--only", "mix", "--rounds", "1"],
    "contention stalls": ["contention.py", "--only", "stalls", "--calls", "3", "--seconds", "0.1"],
    "channels": ["channels.py", "--seconds", "0.05"],
    "graphs": ["graphs.py", "--only", "graph of 3", "--rounds", "1", "--seconds", "0.01"],
    "collectives": ["collectives.py", "--only", "barrier", "--rounds", "1", "--seconds", "0.01"],
    "data": [
        "data.py", "--only", "of Parquet", "--scale", "0.001", "--rounds", "1", "--seconds", "0.01", "--folder", FOLDER,
    ],
    "data anchors": [
        "data.py", "--only", "TPC-H Q", "--scale", "0.001", "--rounds", "1", "--folder", FOLDER, "--module", "anchors",
    ],
    "train": ["train.py", "--only", "reports, 1", "--rounds", "1", "--seconds", "0.05"],
    "tune": ["tune.py", "--only", "killed", "--scale", "0.01"],
    "tune simulated": ["tune.py", "--only", "simulated", "--scale", "0.001"],
    "tune anchors": ["tune.py", "--only", "no-op", "--scale", "0.01", "--module", "anchors"],
    "serve": ["serve.py", "--only", "no-op", "--rounds", "1", "--seconds", "0.05"],
    "serve anchors": [
        "serve.py", "--only", "a chain of two", "--rounds", "1", "--seconds", "0.05", "--module", "anchors",
    ],
    "rllib": ["rllib.py", "--only", "sampling, 8", "--rounds", "1", "--seconds", "0.05"],
    "rllib anchors": [
        "rllib.py", "--only", "sampling, 8", "--rounds", "1", "--seconds", "0.05", "--module", "anchors",
    ],
    "warm workers": ["warm_workers.py", "--module", "decimal", "--rounds", "1"],
    "rest local": ["rest.py", "--only", "local", "--seconds", "0.2", "--settle", "0.1"],
    "rest launched": [
        "rest.py", "--only", "launched", "--seconds", "0.2", "--settle", "0.1", "--workers", "1",
    ],
    "launcher": ["launcher.py", "--hosts", "1", "--first", "1", "--each", "0.5", "--once"],
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", SMALL.values(), ids=SMALL.keys())
def test_a_benchmark_prints_its_line(command: list[str], tmp_path: pathlib.Path) -> None:
    if command[0] == "launcher.py" and (reason := sshd.missing()):
        pytest.skip(reason)
    if command[0] in ("train.py", "rllib.py"):
        pytest.importorskip("torch")
    script, *arguments = [str(tmp_path) if word == FOLDER else word for word in command]
    done = subprocess.run(
        [sys.executable, str(BENCH / script), *arguments], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    found = json.loads(line)
    assert found["benchmark"] == script.removesuffix(".py")
    assert found["error"] == ""
    assert found["machine"]["cores"] > 0
    assert found["figures"]
    for figure in found["figures"]:
        assert figure["name"]
        assert figure["unit"]
        assert isinstance(figure["value"], int | float)


BY_HAND = {
    "rllib_curves": "takes half an hour, and draws",
    "remote_driver": "wants a head that runs already, of ours or of Ray",
    "serve_client": "the load generator of the benchmark of serve",
    "tune_study": "the driver that the benchmark of tune kills",
}


def test_every_benchmark_is_run_by_all() -> None:
    known = (BENCH / "all").read_text()
    scripts = [path.stem for path in BENCH.glob("*.py") if "def main" in path.read_text()]
    scripts = [name for name in scripts if name not in BY_HAND]
    assert scripts
    assert [name for name in scripts if f'"{name}"' not in known] == []


def test_all_refuses_a_name_that_is_none() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "all"), "--only", "rest,nothing"],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 2
    assert "no such benchmark: nothing" in done.stderr


def test_all_tells_of_one_that_fails() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "all"), "--only", "autoscaler", "--timeout", "0.001"],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 1
    line = json.loads(done.stdout)
    assert line["benchmark"] == "autoscaler"
    assert "did not end within" in line["error"]
