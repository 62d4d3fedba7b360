"""`ray start` in our terms."""

from __future__ import annotations

import pytest

from clusterctl.spec.ray_start import parse_start, split


@pytest.mark.parametrize(
    ("commands", "kept", "port", "resources"),
    [
        ([], [], 0, {}),
        (["ray stop"], [], 0, {}),
        (["ray stop || true; /opt/conda/bin/ray start --head --port=1"], [], 1, {}),
        (["ray start --head --port 7000 --num-cpus=3"], [], 7000, {"CPU": 3.0}),
        (["echo a; ray start --num-gpus 1", "echo b"], ["echo a", "echo b"], 0, {"GPU": 1.0}),
        (["""ray start --resources='{"x": 2}'"""], [], 0, {"x": 2.0}),
        (["ray start --head --block && echo late"], ["echo late"], 0, {}),
        (["ulimit -n 65536;\nray start \\\n --head\\\n --port=7"], [], 7, {}),
        (["export A='x; y' && ray start --head > /tmp/log 2>&1"], ["export A='x; y'"], 0, {}),
        (
            ["ray start --memory=100 --object-store-memory=50"],
            [],
            0,
            {"memory": 100.0, "object_store_memory": 50.0},
        ),
    ],
)
def test_start_commands(commands: list[str], kept: list[str], port: int, resources: dict[str, float]) -> None:
    start = parse_start(commands)
    assert (start.commands, start.control_port, start.resources) == (kept, port, resources)


def test_labels_and_the_apis_port() -> None:
    start = parse_start(["ray start --head --dashboard-port=9000 --labels=zone=a,rack=7"])
    assert (start.api_port, start.labels) == (9000, {"zone": "a", "rack": "7"})


def test_what_is_not_done_is_said_with_its_reason() -> None:
    (stock,) = parse_start(["ray start --head --dashboard-host=0.0.0.0 --autoscaling-config=~/c.yaml"]).unused
    assert stock.startswith("--dashboard-host (the head's API listens on the machine's loopback")
    unused = parse_start(["RAY_x=1 ray start --min-worker-port 5 --max-worker-port=6", "ray up x"]).unused
    assert [text.split(" (")[0] for text in unused] == [
        "--min-worker-port",
        "--max-worker-port",
        "RAY_x",
        "`ray up x`",
    ]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ray start --port=x", "--port: 'x' is no port"),
        ("ray start --dashboard-port 65536", "'65536' is no port"),
        ("ray start --resources='[1]'", "--resources: .* is no JSON mapping"),
        ('ray start --resources={"a":1}', "is no JSON mapping, such as .* in quotes of the shell"),
        ("""ray start --resources='{"a": null}'""", "'None' is no number"),
        ("ray start --num-cpus=many", "--num-cpus: 'many' is no number"),
        ("ray start --num-cpus=-1", "'-1' is no number from 0 upwards"),
        ("ray start --num-gpus=nan", "'nan' is no number"),
        ("ray start --num-cpus", "--num-cpus has no value"),
        ("ray start --labels=a", "'a' is no name=value"),
        ("ray start --numcpus=1", "did you mean --num-cpus?"),
        ("echo 'a", "No closing quotation"),
    ],
)
def test_unusable_commands(command: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        parse_start([command])


def test_lines_are_split_where_the_shell_would() -> None:
    assert split("a && b; c\nd") == ["a", "b", "c", "d"]
    assert split("""bash -c 'a; b' && echo "c && d" \\; e""") == ["bash -c 'a; b'", """echo "c && d" \\; e"""]
    assert split("a || b") == ["a || b"]


def test_what_only_the_nodes_shell_knows_is_not_taken() -> None:
    found = parse_start(["ray start --num-cpus=$(nproc) --port=$PORT --dashboard-port=8000"])
    assert found.unknown == ["--num-cpus", "--port"]
    assert (found.resources, found.control_port, found.api_port) == ({}, 0, 8000)
