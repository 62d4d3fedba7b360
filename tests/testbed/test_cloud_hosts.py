"""Hosts that follow a cloud."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.polling import eventually
from tests.testbed.cloud_hosts import CloudHosts, Wanted
from tests.testbed.sshd import missing, new_key

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")


def test_a_machine_keeps_its_disk_and_its_host_key_from_boot_to_boot(tmp_path: Path) -> None:
    new_key(tmp_path / "key")
    keys = {"someone": [(tmp_path / "key.pub").read_text().strip()]}
    cloud = {
        "one": Wanted(("10.128.0.2", "203.0.113.7"), keys),
        "two": Wanted(("10.128.0.3",), keys),
    }

    def log_in(address: str, command: str) -> str:
        options = ("UserKnownHostsFile=" + str(tmp_path / "known"), "StrictHostKeyChecking=accept-new")
        words = [word for option in options for word in ("-o", option)]
        key = ("-i", str(tmp_path / "key"))
        ran = subprocess.run(
            ["ssh", *key, *words, f"someone@{address}", command], capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    with CloudHosts(lambda: dict(cloud)) as bed, bed.inside():
        assert eventually(lambda: bed.names() == ["one", "two"])
        assert log_in("203.0.113.7", "echo kept > note; sudo id -u") == "0\n"
        two = bed.host("two")
        assert two is not None
        greeting = "exec 3<>/dev/tcp/203.0.113.7/22; head -c 4 <&3"
        assert two.run(["bash", "-c", greeting]) == "SSH-"
        cloud["two"] = Wanted(cloud["two"].addresses, keys, is_open=False)
        assert eventually(lambda: "blackhole" in two.run(["ip", "route"]))
        with pytest.raises(TimeoutError):
            socket.create_connection(("10.128.0.3", 22), timeout=0.2)
        cloud["two"] = Wanted(cloud["two"].addresses, keys)
        assert eventually(lambda: "blackhole" not in two.run(["ip", "route"]))
        socket.create_connection(("10.128.0.3", 22), timeout=60).close()
        cloud["one"] = Wanted(cloud["one"].addresses, keys, is_running=False)
        assert eventually(lambda: bed.names() == ["two"])
        cloud["one"] = Wanted(("10.128.0.2", "203.0.113.8"), keys)
        assert eventually(lambda: bed.names() == ["one", "two"])
        assert log_in("203.0.113.8", "cat note") == "kept\n"
        known = (tmp_path / "known").read_text().splitlines()
        assert len(known) == 2
        assert len({line.split(" ", 1)[1] for line in known}) == 1
        cloud.clear()
        assert eventually(lambda: bed.names() == [])
