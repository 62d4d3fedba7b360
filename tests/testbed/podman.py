"""Hosts that run containers: podman, and an image with Debian's Python and little else, made of this machine's files.
Needs Debian's podman and runc (`scripts/test` installs them).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.testbed import sshd
from tests.testbed.hosts import Host

IMAGE = "localhost/testbed:1"
_CGROUPS = ("memory", "pids", "devices", "freezer", "blkio", "cpuset")

_IMAGE = r"""
set -e
mkdir -p "$1" && cd "$1"
mkdir -p usr/bin usr/lib/x86_64-linux-gnu usr/lib64 tmp root etc proc sys dev run var/tmp
ln -s usr/bin bin; ln -s usr/lib lib; ln -s usr/lib64 lib64
for name in bash env cat ls mkdir rm rmdir mv ln cp chmod chown id uname dirname basename readlink sleep tar gzip \
    base64 head tail tr printf touch stat sha256sum cut sort find grep sed tty mktemp getconf seq python3 python3.11; do
    cp -a "/usr/bin/$name" usr/bin/
done
cp -L /bin/sh usr/bin/sh
cp -a /usr/lib/python3.11 usr/lib/
for name in gcc_s stdc++ rt pthread dl m util resolv nss_files nss_dns; do
    cp -L /usr/lib/x86_64-linux-gnu/lib$name.so.? usr/lib/x86_64-linux-gnu/
done
rm -rf usr/lib/python3.11/ensurepip usr/lib/python3.11/test
for file in usr/bin/* usr/lib/python3.11/lib-dynload/*.so; do ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || true; done |
    sort -u | while read -r library; do mkdir -p "./$(dirname "$library")"; cp -L "$library" "./$library"; done
echo root:x:0:0:root:/root:/bin/sh > etc/passwd
echo root:x:0: > etc/group
chmod 1777 tmp
"""

_PREPARE = """
set -e
mkdir -p /etc/containers /var/lib/containers
mount -t tmpfs containers /var/lib/containers
mount -t tmpfs cgroups /sys/fs/cgroup
for name in {cgroups}; do
    mkdir /sys/fs/cgroup/$name; mount -t cgroup -o $name cgroup /sys/fs/cgroup/$name
done
cat > /etc/containers/containers.conf <<'END'
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=30000:30000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
END
echo '{{"default": [{{"type": "insecureAcceptAnything"}}]}}' > /etc/containers/policy.json
tar -C {image} -c . | podman import --quiet - {name} >/dev/null
"""


_ROOT_ONLY = """
for program in /usr/bin/newuidmap /usr/bin/newgidmap; do
    [ ! -e $program ] || mount --bind /dev/null $program
done
"""


def missing() -> str:
    """Why there can be no such hosts here; "" when there can."""
    if reason := sshd.missing():
        return reason
    lacking = [tool for tool in ("podman", "runc") if shutil.which(tool) is None]
    if lacking:
        return f"{', '.join(lacking)} is missing"
    absent = [name for name in _CGROUPS if not os.path.isdir(f"/sys/fs/cgroup/{name}")]
    return f"podman on a host needs the cgroups {', '.join(absent)} of version 1" if absent else ""


def make_image(folder: Path) -> Path:
    """The files of the image."""
    subprocess.run(["sh", "-c", _IMAGE, "sh", str(folder)], check=True, stdin=subprocess.DEVNULL)
    return folder


def install(host: Host, image: Path, *, rootless: bool = False) -> None:
    """The host runs containers from now on. `image` has to be one of the test bed's shared directories.

    Args:
        rootless: users other than root may have containers of their own, if Debian's `uidmap` is there. Without it they
            use root's, through sudo, and find the image there.
    """
    script = _PREPARE.format(cgroups=" ".join(_CGROUPS), image=image, name=IMAGE)
    if not rootless:
        script += _ROOT_ONLY
    host.run(["sh", "-c", script], timeout_s=120)


def clean_up(host: Host) -> None:
    """Removes all containers, with their cgroups, which would outlive the host."""
    host.run(["sh", "-c", "podman rm -fa >/dev/null 2>&1; true"], timeout_s=60)
    for name in _CGROUPS:
        parent = Path(f"/sys/fs/cgroup/{name}/libpod_parent")
        for folder in (*parent.glob("*/"), parent):
            with contextlib.suppress(OSError):  # of another test bed, or gone
                folder.rmdir()
