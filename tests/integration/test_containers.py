"""Workers in containers, with podman, on hosts of the test bed: as root and rootless."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.testbed import podman
from tests.testbed.hosts import Host, Testbed

IMAGES_PYTHON = (3, 11)
MISSING = podman.missing()
if not MISSING and sys.version_info[:2] != IMAGES_PYTHON:
    MISSING = "the test bed's image has Python 3.11, and workers in containers need the Python of their node"
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "hosts can run containers"),
    pytest.mark.timeout(400),
]
ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(__file__).with_name("container_program.py")

OTHERS = r"""
set -e
make() {
    podman run --name=x --entrypoint=sh IMAGE -c "$2"
    podman commit -q x $1; podman rm x
}
old='#!/bin/sh\necho FACTS [\\"2.7\\", {}]\n'
make localhost/other "rm /usr/bin/python3; printf '$old' > /usr/bin/python3; chmod 755 /usr/bin/python3"
make localhost/old "rm /usr/bin/python3 /usr/bin/python3.11"
"""
ROOTLESS = """
set -e
useradd --create-home --uid 4711 boxer
for file in /etc/subuid /etc/subgid; do echo boxer:400000:65536 > $file; done
mount -t tmpfs -o mode=755,uid=4711,gid=4711 home /home/boxer
mkdir -p /run/user/4711; chown boxer /run/user/4711; chmod 700 /run/user/4711
mount --make-rshared /
sed -i '/default_ulimits/d' /etc/containers/containers.conf
folder=PYTHON; while [ $folder != / ]; do chmod o+x $folder; folder=$(dirname $folder); done
podman save -o /tmp/image.tar IMAGE
chmod 644 /tmp/image.tar
"""
"""Home is not on the overlay of the test bed's host, for overlays do not lie on overlays."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("image")
    image = podman.make_image(folder / "image")
    shared = folder / "shared"
    shared.mkdir()
    (shared / "file").write_text("brought along")
    folder.chmod(0o755)
    with Testbed(1, [str(image), str(shared), str(ROOT)]) as bed:
        [host] = bed.hosts
        podman.install(host, image, rootless=True)
        host.run(["mkdir", "/tmp/given"])
        host.run(["cp", "-r", f"{shared}/file", "/tmp/given/"])
        yield host
        podman.clean_up(host)


def run(host: Host, prefix: list[str], who: str) -> tuple[dict[str, Any], str]:
    """What the program found, and what else it printed. It has killed itself."""
    environment = [
        "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        f"PYTHONPATH={ROOT}",
        "GIVEN_BY_IMAGE=no",
    ]
    unset = [f"--unset=CLUSTERCTL_{name}" for name in ("TMPDIR", "HOME")]  # the host has no such folders
    program = [sys.executable, str(PROGRAM), podman.IMAGE, "/tmp/given", who]
    command = ["sh", "-c", '"$@"; test $? = 137', "sh", *prefix, "env", *unset, *environment, *program]
    *output, last = host.run(command, timeout_s=170).splitlines()
    found: dict[str, Any] = json.loads(last)
    return found, "\n".join(output)


def check(found: dict[str, Any], user: int) -> None:
    """What holds for every user."""
    task = found["task"]
    assert task.pop("zygote") not in (0, 1)
    assert task == {
        "driver's program exists": False,
        "perl exists": False,
        "variables": ["podman ", "3"],
        "user": user,
        "file": "brought along",
        "length": 5_000_000,
    }
    assert found["result"] == 3_000_000
    assert found["child"]["variables"] == ["podman ", "3"], "tasks of an actor inherit its image"
    assert found["exit"].startswith("ActorDiedError"), found["exit"]
    assert "exit code 3" in found["exit"]
    assert found["again"]["length"] == 0, "another container takes the place of one that was killed"
    assert found["no image"].startswith("RuntimeEnvSetupError"), found["no image"]
    assert "the image localhost/none:1 is not on this node, and podman cannot pull it" in found["no image"]


def test_as_root(host: Host) -> None:
    host.run(["bash", "-c", OTHERS.replace("IMAGE", podman.IMAGE)])
    found, output = run(host, [], "root")
    check(found, 0)
    assert "printed in a container" in output
    assert "needs Python 3.11, as this node has" in found["old"]
    assert found["other"] == "no error", "python3.11 fits, though python3 does not"
    assert found["memory"].startswith("WorkerCrashedError"), found["memory"]
    assert eventually(lambda: not host.run(["podman", "ps", "-aq"])), "containers end with their node"


@pytest.mark.skipif(shutil.which("newuidmap") is None, reason="rootless podman needs newuidmap (uidmap)")
def test_rootless(host: Host) -> None:
    base = os.path.realpath(sys.executable)
    host.run(["bash", "-c", ROOTLESS.replace("IMAGE", podman.IMAGE).replace("PYTHON", base)])
    variables = ["HOME=/home/boxer", "USER=boxer", "XDG_RUNTIME_DIR=/run/user/4711"]
    user = ["setpriv", "--reuid=4711", "--regid=4711", "--init-groups", "env", *variables]
    host.run([*user, "podman", "load", "--quiet", "--input", "/tmp/image.tar"])
    found, _ = run(host, user, "user")
    check(found, 4711)
    assert eventually(lambda: not host.run([*user, "podman", "ps", "-aq"])), "containers end with their node"
