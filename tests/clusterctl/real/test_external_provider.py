"""The example of an external provider: a whole life of a cluster, whose head imports the module that it was brought."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from clusterctl import processes
from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually

pytestmark = pytest.mark.timeout(400)

FOLDER = pathlib.Path(__file__).parents[3] / "examples" / "providers"
SPEC = str(FOLDER / "directories.yaml")


def root() -> pathlib.Path:
    return pathlib.Path(os.environ["CLUSTERCTL_TMPDIR"], f"directories-{os.getuid()}")


def test_workers_that_bring_the_runtime_join_by_themselves(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    cli = Cli(tmp_path)
    spec = tmp_path / "joining.yaml"
    text = pathlib.Path(SPEC).read_text().replace(":Directories ", ":JoiningDirectories ")
    spec.write_text(f"{text}setup_commands: ['touch ~/set-up']\n")
    ran = cli.run("check", str(spec))
    assert ran.status == 0, ran.err
    assert "setup_commands is not for the workers of this provider" in ran.out + ran.err
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=150)
        assert ran.status == 0, ran.err
        (worker,) = (node for node in alive(cli.status()) if not node["is_head"])
        assert worker["node_type"] == "worker"
        program = "import os, runtime; runtime.init(); f = runtime.remote(lambda: dict(os.environ)); " + (
            "e = runtime.get(f.options(label_selector={'ray.io/node-group': 'worker'}).remote()); "
            "print(os.path.exists(e['HOME'] + '/set-up'), 'CLUSTERCTL_JOIN_TOKEN' in e)"
        )
        ran = cli.run("exec", "python", "-c", program)
        assert (ran.status, ran.out) == (0, "False False\n"), ran.err
        machines = [folder.name for folder in root().iterdir()]
    finally:
        ran = cli.run("down", "-y", str(spec))
    assert ran.status == 0, ran.err
    assert not root().exists()
    assert eventually(lambda: not any(processes.of_machines(machines).values()))


def test_a_cluster_of_an_external_provider(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    cli = Cli(tmp_path)
    assert cli.run("check", SPEC).status == 0
    try:
        ran = cli.run("up", "-y", SPEC, timeout_s=150)
        assert ran.status == 0, ran.err
        assert sorted(node["node_type"] for node in alive(cli.status())) == ["head", "worker"]
        program = (
            "import runtime; runtime.init(); print(runtime.get(runtime.remote(lambda: 41 + 1).remote()))"
        )
        ran = cli.run("exec", "python", "-c", program)
        assert (ran.status, ran.out) == (0, "42\n"), ran.err
        ran = cli.run(
            "exec", "ls ~/.clusterctl-node/provider/directories.py && ls ~/../../*/machine.json | wc -l"
        )
        assert ran.out.splitlines()[-1] == "2", ran.err
        machines = [folder.name for folder in root().iterdir()]
    finally:
        shutil.rmtree(tmp_path / "home" / "clusters", ignore_errors=True)  # the tags of the machines suffice
        ran = cli.run("down", "-y", SPEC)
    assert ran.status == 0, ran.err
    assert not root().exists()
    assert eventually(lambda: not any(processes.of_machines(machines).values()))
