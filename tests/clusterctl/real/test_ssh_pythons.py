"""A cluster on machines of one's own whose Python is another one than the operator's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterctl.artefacts.target import NoRuntime, Target
from clusterctl.launcher import shipping
from tests.clusterctl.cli import Cli, alive
from tests.testbed import pythons
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

SPEC = """\
cluster_name: pythons
provider: {{type: ssh, head: {head}, workers: [{worker}], python: {python}}}
auth: {{ssh_user: {user}, ssh_private_key: {key}}}
"""
PROGRAM = """
import socket, sys
import runtime

runtime.init()

@runtime.remote(num_cpus=1)
def where():
    import msgspec
    return socket.gethostname(), sys.version_info[:2], msgspec.json.decode(b"[1]")

strategies = runtime.util.scheduling_strategies
nodes = sorted((node["NodeManagerHostname"], node["NodeID"]) for node in runtime.nodes() if node["Alive"])
there = [strategies.NodeAffinitySchedulingStrategy(node, soft=False) for _, node in nodes]
print("ran on", *runtime.get([where.options(scheduling_strategy=one).remote() for one in there]))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    found = pythons.another()
    if found is None:
        pytest.skip("there is no second Python here, of PATH, pyenv or uv")
    return found


@pytest.fixture(scope="module")
def cli(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """With the runtime for the other Python in its cache, for the hosts' network leads nowhere."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    here = Target.here()
    assert here is not None
    target = Target((3, int(python.name.partition(".")[2])), here.machine)
    try:
        shipping.packed(target, str(cli.folder / "home" / "cache"), ["ssh"])
    except NoRuntime as error:
        pytest.skip(str(error))
    return cli


@pytest.fixture(scope="module")
def bed(python: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    """Hosts with the other Python beside Debian's. `cli` comes first, from where the index can be reached."""
    folder = tmp_path_factory.mktemp("bed")
    with SshTestbed(2, folder, shared=[str(python.parents[1])], hidden=BARE) as bed, bed.inside():
        yield bed


@pytest.mark.timeout(600)  # the index is asked, and the hosts compile what they import
def test_machines_have_another_python_than_the_operator(bed: SshTestbed, cli: Cli, python: Path) -> None:
    head, worker = bed.hosts
    file = cli.folder / "pythons.yaml"
    file.write_text(
        SPEC.format(head=head.address, worker=worker.address, user=USER, key=bed.key_file, python=python)
    )
    assert cli.run("check", str(file)).status == 0
    ran = cli.run("up", "-y", str(file), timeout_s=170)
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 2
    version = tuple(map(int, python.name.removeprefix("python").split(".")))
    ran = cli.run("submit", cli.script(PROGRAM), timeout_s=120)
    assert f"ran on ('h1', {version}, [1]) ('h2', {version}, [1])" in ran.out, ran.err
    findings = [item["what"] for item in cli.run("doctor", "--json").json()["findings"]]
    assert not [what for what in findings if "Python" in what], findings
    ran = cli.run("up", "-y", str(file))
    assert ran.status == 0, ran.err
    assert cli.run("down", "-y", str(file)).status == 0
    for host in bed.hosts:
        assert host.run(["sh", "-c", f"ls -d /home/{USER}/.clusterctl-node 2>/dev/null; true"]) == ""
