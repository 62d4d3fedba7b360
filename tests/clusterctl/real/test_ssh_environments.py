"""Virtual environments of jobs on hosts as Debian's cloud images are: Python has `venv`, and there is no pip."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

HIDDEN = tuple(path for path in BARE if not path.endswith("/venv"))
SPEC = """\
cluster_name: environments
provider: {{type: ssh, head: {head}, workers: [{worker}]}}
auth: {{ssh_user: {user}, ssh_private_key: {key}}}
"""
PROGRAM = """
import runtime

runtime.init()
packages = ["${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/given-0.5-py3-none-any.whl"]
pip = {"packages": packages, "pip_install_options": ["--no-index"]}

@runtime.remote(num_cpus=1, runtime_env={"pip": pip})
def look():
    import given, pip, socket, sys
    return socket.gethostname(), given.VALUE, pip.__file__.startswith(sys.prefix)

Affinity = runtime.util.scheduling_strategies.NodeAffinitySchedulingStrategy
nodes = [node["NodeID"] for node in runtime.nodes() if node["Alive"]]
found = [look.options(scheduling_strategy=Affinity(node, soft=False)).remote() for node in nodes]
print("found", sorted(runtime.get(found)))
"""


@pytest.fixture
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), hidden=HIDDEN) as bed, bed.inside():
        yield bed


def write_wheel(path: Path) -> None:
    info = "given-0.5.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("given.py", "VALUE = 5\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: given\nVersion: 0.5\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"given.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def test_packages_of_a_job_are_installed_on_every_host(bed: SshTestbed, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    head, worker = (host.address for host in bed.hosts)
    (tmp_path / "environments.yaml").write_text(
        SPEC.format(head=head, worker=worker, user=USER, key=bed.key_file)
    )
    job = tmp_path / "job"
    job.mkdir()
    (job / "job.py").write_text(PROGRAM)
    write_wheel(job / "given-0.5-py3-none-any.whl")
    ran = cli.run("up", "-y", "environments.yaml", timeout_s=170)
    try:
        assert ran.status == 0, ran.err
        ran = cli.run("submit", "--working-dir", str(job), str(job / "job.py"), timeout_s=170)
        assert "found [('h1', 5, True), ('h2', 5, True)]" in ran.out, ran.out + ran.err
    finally:
        cli.run("down", "-y", timeout_s=170)
