"""The image of `examples/image`: built by podman on a host, whose container joins a cluster as a node by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pip
import pytest

from clusterctl.api_client import ApiClient
from tests.clusterctl.cli import Cli
from tests.polling import eventually
from tests.testbed import podman
from tests.testbed.hosts import OPERATOR
from tests.testbed.sshd import BARE, SshTestbed

pytestmark = [
    pytest.mark.skipif(bool(podman.missing()), reason=podman.missing() or "hosts can run containers"),
    pytest.mark.timeout(400),
]

ROOT = Path(__file__).parents[3]
CONTEXT = ("pyproject.toml", "README.md", "LICENSE", "runtime", "autoscaler", "clusterctl", "examples/image")
PROGRAM = """
import os, socket
import runtime

runtime.init("auto")
where = runtime.remote(lambda: (socket.gethostname(), os.environ.get("CLUSTERCTL_JOIN_TOKEN")))
print(runtime.get(where.options(resources={"boxed": 1}).remote()))
"""


def python_image(folder: Path) -> Path:
    """The test bed's image, with pip."""
    podman.make_image(folder)
    library = folder / "usr" / "lib"
    shutil.copytree(Path(pip.__file__).parent, library / "python3" / "dist-packages" / "pip", symlinks=True)
    (library / "python3.11" / "EXTERNALLY-MANAGED").unlink(missing_ok=True)
    return folder


def context(folder: Path) -> Path:
    """What the image is built from, and the wheels that are installed with it."""
    for name in CONTEXT:
        source, target = ROOT / name, folder / "context" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    download = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--python-version",
        "3.11",
        "--only-binary=:all:",
    ]
    wheels = ["--dest", str(folder / "wheels")]
    subprocess.run([*download, *wheels, *_dependencies(), "setuptools"], check=True)
    return folder


def _dependencies() -> list[str]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Debian's Python 3.11, and nodes of one cluster need the same")
    folder = tmp_path_factory.mktemp("bed")
    image, built = python_image(folder / "image"), context(folder / "built")
    with SshTestbed(1, folder, [str(image), str(built)], hidden=BARE) as bed, bed.inside():
        podman.install(bed.hosts[0], image)
        yield bed
        podman.clean_up(bed.hosts[0])


def test_a_container_of_the_image_joins_a_cluster(bed: SshTestbed, tmp_path: Path) -> None:
    (host,) = bed.hosts
    built = bed._shared[1]
    host.run(
        [
            *("podman", "build", "--quiet", "--network", "none", "--tag", "node"),
            *(
                "--volume",
                f"{built}/wheels:/wheels:ro",
                "--file",
                f"{built}/context/examples/image/Dockerfile",
            ),
            *(
                "--build-arg",
                f"PYTHON={podman.IMAGE}",
                "--build-arg",
                "PIP_OPTIONS=--no-index --find-links /wheels",
            ),
            f"{built}/context",
        ],
        timeout_s=200,
    )
    cli = Cli(tmp_path)
    ran = cli.run("start", "--head", "--host", OPERATOR, "--num-cpus", "1", "--json")
    assert ran.status == 0, ran.err
    head = ran.json()
    try:
        token = cli.run("node", "token").out.strip()
        environment = {**os.environ, "CLUSTERCTL_JOIN_TOKEN": token}
        started = host.popen(
            [
                *(
                    "podman",
                    "run",
                    "--detach",
                    "--name",
                    "box",
                    "--network",
                    "host",
                    "--env",
                    "CLUSTERCTL_JOIN_TOKEN",
                ),
                *("node", "clusterctl", "start", "--block", "--num-cpus", "1", "--resources", '{"boxed": 1}'),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = started.communicate(timeout=120)[0]
        assert started.returncode == 0, said
        secret = Path(head["secret_file"]).read_text().strip()
        api = ApiClient(head["api_url"], secret, "image")
        joined = eventually(lambda: [n for n in api.get("/api/nodes") if not n["is_head"]], 60.0)
        assert joined, host.run(["sh", "-c", "podman logs box 2>&1"])
        api.close()
        program = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(program, env=cli.env(), capture_output=True, text=True, timeout=120)
        assert done.stdout == "('h1', None)\n", done.stderr
        host.run(["podman", "stop", "--time", "30", "box"])
        logs = host.run(["podman", "logs", "box"])
        assert "this machine has joined" in logs
    finally:
        ended = cli.run("start", "--stop")
    assert ended.out == "1 ended\n"
