"""Nodes in containers of machines that are entered by SSH, with podman: from bare machines to a job's result, and
nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually
from tests.testbed import podman
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed

pytestmark = pytest.mark.skipif(bool(podman.missing()), reason=podman.missing() or "hosts can run containers")

SPEC = """\
cluster_name: boxed
provider: {{type: ssh, head: {head}, workers: [{worker}]}}
auth: {{ssh_user: {user}, ssh_private_key: {key}}}
docker:
  image: {image}
  container_name: box
  pull_before_run: false
  run_options: ["-e GIVEN=to-all"]
  worker_run_options: ["-e GIVEN=to-workers"]
file_mounts: {{"~/data": {data}}}
initialization_commands: ["echo $HOME > ~/initialized"]
setup_commands: ["test $HOME = /root && cp ~/data/value ~/set-up"]
"""
PROGRAM = """
import os, socket
import runtime

runtime.init()

@runtime.remote(num_cpus=1)
def look():
    return socket.gethostname(), os.environ["GIVEN"], open("/root/set-up").read(), os.path.exists("/usr/bin/ssh")

On = runtime.util.scheduling_strategies.NodeAffinitySchedulingStrategy
nodes = [node["NodeID"] for node in runtime.nodes() if node["Alive"]]
print(sorted(runtime.get([look.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes])))
"""

OLD = """
set -e
container=$(podman create {image} x)
bin=$(podman mount $container)/usr/bin
rm $bin/python3
printf '#!/bin/sh\necho 2.7\n' > $bin/python3
chmod 755 $bin/python3
podman umount $container
podman commit -q $container localhost/old
podman rm $container
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    folder = tmp_path_factory.mktemp("bed")
    image = podman.make_image(folder / "image")
    with SshTestbed(2, folder, [str(image)], hidden=BARE) as bed, bed.inside():
        for host in bed.hosts:
            podman.install(host, image)
        yield bed
        for host in bed.hosts:
            podman.clean_up(host)


def what_is_left(host: Host) -> str:
    """Containers, processes, and files beyond those that the host began with, but for those of podman itself."""
    look = (
        f"podman ps -aq; pgrep -u {USER} -a | grep -v sshd: ; pgrep -a conmon; cd /home/{USER}; "
        "find /tmp . -type f -newer /run/host_key ! -path './.ssh*' ! -path '*/containers/*' ! -path '*podman*' "
        "! -name initialized"
    )
    return host.run(["sh", "-c", f"{look}; true"])


def test_a_cluster_in_containers(bed: SshTestbed, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "value").write_text("42")
    head, worker = bed.hosts
    values = {"user": USER, "key": bed.key_file, "image": podman.IMAGE, "data": tmp_path / "data"}
    text = SPEC.format(head=head.address, worker=worker.address, **values)
    (tmp_path / "boxed.yaml").write_text(text)
    ran = cli.run("up", "-y", "boxed.yaml", timeout_s=170)
    try:
        assert ran.status == 0, ran.err
        assert len(alive(cli.status())) == 2
        assert worker.run(["cat", f"/home/{USER}/initialized"]).strip() == f"/home/{USER}"
        ran = cli.run("submit", cli.script(PROGRAM), timeout_s=120)
        assert ran.status == 0, ran.err + ran.out
        assert "[('h1', 'to-all', '42', False), ('h2', 'to-workers', '42', False)]" in ran.out
        ran = cli.run("exec", "--all-nodes", "echo $container in $HOME; ls /home")
        assert ran.out.count("podman in /root") == 2
        assert cli.run("exec", "exit 7").status == 7
        assert "step: container box" in cli.run("logs", "--setup", "-n", "500").out
        assert cli.run("attach").status == 0
        assert cli.run("up", "-y", "boxed.yaml").out.count("nothing to do") == 1
    finally:
        ended = cli.run("down", "-y", "boxed.yaml")
    assert ended.status == 0, ended.err
    assert eventually(lambda: [what_is_left(host) for host in bed.hosts] == ["", ""])


def test_a_python_that_does_not_fit_is_refused_before_anything_is_installed(
    bed: SshTestbed, tmp_path: Path
) -> None:
    cli = Cli(tmp_path)
    (tmp_path / "data").mkdir()
    head, worker = bed.hosts
    head.run(["sh", "-c", OLD.format(image=podman.IMAGE)])
    values = {"user": USER, "key": bed.key_file, "data": tmp_path / "data"}
    text = SPEC.format(head=head.address, worker=worker.address, image="localhost/old", **values)
    (tmp_path / "boxed.yaml").write_text(text)
    ran = cli.run("up", "-y", "boxed.yaml", timeout_s=170)
    assert ran.status == 1
    assert "it says '2.7'; the image localhost/old needs Python" in ran.err
    assert eventually(lambda: what_is_left(head) == "")
