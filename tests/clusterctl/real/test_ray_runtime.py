"""A file of Ray's for machines of one's own, with our engine and, one line longer, with Ray itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli
from tests.polling import eventually
from tests.testbed import podman, real_ray
from tests.testbed.hosts import Host
from tests.testbed.sshd import SshTestbed, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here"),
    pytest.mark.timeout(500),  # Ray may have to be installed first
]

# A file as Ray's users have it for machines of their own. As root, whose home may be where the Python is.
SPEC = """\
cluster_name: rays
max_workers: 1
min_workers: {count}
upscaling_speed: 1.0
idle_timeout_minutes: 5
docker: {{}}
provider:
    type: local
    head_ip: {head}
    worker_ips: [{worker}]
auth:
    ssh_user: root
    ssh_private_key: {key}
file_mounts: {{}}
cluster_synced_files: []
file_mounts_sync_continuously: false
rsync_exclude: ["**/.git"]
rsync_filter: [".gitignore"]
initialization_commands: []
setup_commands: ['echo "head $RAY_HEAD_IP" > /tmp/was-set-up']
head_setup_commands: []
worker_setup_commands: []
head_start_ray_commands:
    - ray stop
    - >-
      ulimit -c unlimited; ray start --head --port=6379 --num-cpus=1 --object-store-memory=100000000
      --autoscaling-config=~/ray_bootstrap_config.yaml
worker_start_ray_commands:
    - ray stop
    - >-
      ray start --address=$RAY_HEAD_IP:6379 --num-cpus=1 --object-store-memory=100000000
      --resources='{{"special": 2}}'
"""
RUNTIME = "runtime: {{{{kind: ray, python: {python}}}}}\n"
PROGRAM = """
import socket, sys
import ray

ray.init()

@ray.remote(resources={"special": 1})
def where():
    return socket.gethostname()

print("ran on", ray.get(where.remote()), "with", sys.argv[1:])
raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def ray_python() -> str:
    try:
        return real_ray.python()
    except real_ray.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, ray_python: str) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), real_ray.hidden_from_hosts()) as bed, bed.inside():
        yield bed


def what_is_left(host: Host) -> str:
    processes = "pgrep -a raylet; pgrep -a gcs_server; pgrep -fa [r]ay::"
    files = (
        "find /tmp -mindepth 1 -maxdepth 1 -newer /run/host_key ! -name was-set-up; ls -d ~/.clusterctl-node"
    )
    return host.run(["sh", "-c", f"{processes}; {files}; true"])


@pytest.fixture(scope="module")
def values(bed: SshTestbed) -> dict[str, object]:
    return {"head": bed.hosts[0].address, "worker": bed.hosts[1].address, "key": bed.key_file}


def test_rays_file_with_our_engine(bed: SshTestbed, tmp_path: Path, values: dict[str, object]) -> None:
    cli = Cli(tmp_path)
    spec = tmp_path / "rays.yaml"
    spec.write_text(SPEC.format(**values, count=1))
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=120)
        assert ran.status == 0, ran.err
        ran = cli.run("submit", "--ray-compat", cli.script(PROGRAM), "a", "b c", timeout_s=120)
        assert "ran on h2 with ['a', 'b c']" in ran.out, ran.err
        assert ran.status == 3
    finally:
        ran = cli.run("down", "-y", str(spec))
    assert ran.status == 0, ran.err
    assert [what_is_left(host) for host in bed.hosts] == ["", ""]


def test_the_same_file_with_ray_itself(
    bed: SshTestbed, tmp_path: Path, values: dict[str, object], ray_python: str
) -> None:
    cli = Cli(tmp_path)
    head, worker = bed.hosts
    spec = tmp_path / "rays.yaml"
    text = SPEC + RUNTIME.format(python=ray_python)
    spec.write_text(text.format(**values, count=1))
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=240)
        assert ran.status == 0, ran.err
        assert worker.run(["cat", "/tmp/was-set-up"]) == f"head {head.address}\n"
        ran = cli.run("up", "-y", str(spec))
        assert "nothing to do" in ran.out, ran.err

        ran = cli.run("submit", cli.script(PROGRAM), "a", "b c", timeout_s=120)
        assert "ran on h2 with ['a', 'b c']" in ran.out, ran.err
        assert ran.status == 3
        (job,) = cli.run("job", "list", "--json").json()
        assert (job["status"], job["driver_exit_code"]) == ("FAILED", 3)
        ran = cli.run("status")
        assert "/2.0 special" in ran.out, ran.err
        ran = cli.run("exec", "python -c 'import ray; ray.init(); print(len(ray.nodes()))'")
        assert ran.out.endswith("2\n"), ran.err

        ran = cli.run("logs", worker.address, "--file", "raylet")
        assert "raylet.out" in ran.out, ran.err
        assert "step: setup_commands[0]" in cli.run("logs", worker.address).out
        assert "runs Ray itself" in cli.run("autostop").err

        worker.run(["pkill", "raylet"])
        # Ray takes a while to notice; until then there is nothing to do.
        assert eventually(
            lambda: "setting up 1 worker" in cli.run("up", "-y", str(spec), timeout_s=120).err, 120
        )
        spec.write_text(text.format(**values, count=0))
        ran = cli.run("up", "-y", str(spec), timeout_s=120)
        assert "the head and 0 workers" in ran.out, ran.err
        assert what_is_left(worker) == ""
    finally:
        ran = cli.run("down", "-y", str(spec))
    assert ran.status == 0, ran.err
    assert what_is_left(head) == ""


def test_a_machine_without_ray_is_named(bed: SshTestbed, tmp_path: Path, values: dict[str, object]) -> None:
    cli = Cli(tmp_path)
    spec = tmp_path / "none.yaml"
    spec.write_text((SPEC + RUNTIME.format(python="/usr/bin/python3")).format(**values, count=1))
    ran = cli.run("up", "-y", str(spec), timeout_s=120)
    assert ran.status == 1
    assert "step 'find Ray'" in ran.err
    assert "there is no Ray in /usr/bin/python3: name another runtime.python, or a version" in ran.err
    assert what_is_left(bed.hosts[0]) == ""


BOXED = """\
cluster_name: boxed-rays
provider: {{type: ssh, head: {head}}}
auth: {{ssh_user: root, ssh_private_key: {key}}}
runtime: {{kind: ray}}
docker:
  image: {image}
  container_name: ray_container
  pull_before_run: false
  run_options: [{options}]
head_node_type: head
available_node_types: {{head: {{resources: {{object_store_memory: 100000000}}}}}}
"""


@pytest.mark.skipif(bool(podman.missing()), reason=podman.missing() or "hosts can run containers")
def test_in_a_container_whose_image_has_ray(tmp_path: Path, ray_python: str) -> None:
    cli = Cli(tmp_path)
    image = podman.make_image(tmp_path / "image")
    look = "import sys; print(sys.prefix, sys.base_prefix)"
    folders = subprocess.run([ray_python, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    mounts = [f"-v {folder}:{folder}:ro" for folder in folders.stdout.split() if folder != "/usr"]
    options = [*mounts, f"-e PATH={Path(ray_python).parent}:/usr/bin:/bin"]
    with SshTestbed(1, tmp_path, [str(image), *real_ray.hidden_from_hosts()]) as bed, bed.inside():
        (head,) = bed.hosts
        podman.install(head, image)
        values = {"head": head.address, "key": bed.key_file, "image": podman.IMAGE}
        spec = tmp_path / "boxed.yaml"
        spec.write_text(BOXED.format(options=", ".join(f'"{option}"' for option in options), **values))
        try:
            ran = cli.run("up", "-y", str(spec), timeout_s=240)
            assert ran.status == 0, ran.err
            look = "import os, ray; ray.init(); print(len(ray.nodes()), 'node in', os.environ['container'])"
            ran = cli.run("exec", f'python -c "{look}"', timeout_s=120)
            assert ran.out.endswith("1 node in podman\n"), ran.err
        finally:
            ended = cli.run("down", "-y", str(spec))
            left = head.run(["sh", "-c", "podman ps -aq; pgrep -a raylet; true"])
            podman.clean_up(head)
        assert ended.status == 0, ended.err
        assert left == ""
