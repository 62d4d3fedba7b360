"""The test bed itself: what hosts share and what they do not, and that nothing of them remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.polling import eventually
from tests.testbed.hosts import Host, Testbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")
ROOT = str(Path(__file__).resolve().parents[2])

_LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as listener:
    print("ready", flush=True)
    listener.accept()[0].sendall(socket.gethostname().encode())
"""
_CONNECT = """
import socket, sys
print(socket.create_connection((sys.argv[1], 7000)).recv(100).decode())
"""
_SEND = """
import os, socket, sys
connection = socket.create_connection((sys.argv[1], 7001))
print("connected", flush=True)
sys.stdin.readline()
connection.sendall(b"into the dark")
os._exit(0)
"""
_TAKE = """
import socket, sys
with socket.create_server((sys.argv[1], 7001)) as listener:
    print("ready", flush=True)
    listener.accept()[0].recv(100)
"""
_HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.testbed.hosts import Testbed
with Testbed(1) as bed:
    print(bed._places, *(holder.pid for holder in bed._holders), flush=True)
    time.sleep(600)
"""


def test_hosts_reach_each_other_and_keep_their_files_apart(tmp_path: Path) -> None:
    with Testbed(2, [str(tmp_path)]) as bed:
        one, two = bed.hosts
        python = getattr(sys, "_base_executable", sys.executable)
        listener = one.popen([python, "-c", _LISTEN, one.address], stdout=subprocess.PIPE, text=True)
        listener.stdout.readline()
        assert two.run([python, "-c", _CONNECT, one.address]).strip() == "h1"
        listener.communicate()
        one.run(["sh", "-c", f"echo own > /tmp/own; echo own > /root/own-of-h1; echo all > {tmp_path}/all"])
        assert two.run(["cat", f"{tmp_path}/all"]) == "all\n"
        with pytest.raises(RuntimeError, match="No such file"):
            two.run(["cat", "/tmp/own"])
        with pytest.raises(RuntimeError, match="No such file"):
            two.run(["cat", "/root/own-of-h1"])
    assert not Path("/root/own-of-h1").exists()


def test_hosts_come_and_go() -> None:
    python = getattr(sys, "_base_executable", sys.executable)

    def name_at(address: str) -> str:
        return str(
            subprocess.run([python, "-c", _CONNECT, address], capture_output=True, text=True).stdout
        ).strip()

    def listen(host: Host) -> None:
        listener = host.popen([python, "-c", _LISTEN, host.address], stdout=subprocess.PIPE, text=True)
        listener.stdout.readline()
        listener.stdout.close()

    with Testbed(0) as bed:
        bed.join_network("172.31.255.254", 16)
        first, second = bed.boot("i1", "172.31.0.7", 16), bed.boot("i2", "172.31.99.7", 16)
        with bed.inside():
            listen(first)
            listen(second)
            assert name_at(first.address) == "i1"
            bed.end(first)
            assert bed.hosts == [second]
            listen(bed.boot("i3", "172.31.0.7", 16))
            assert name_at(first.address) == "i3"
            assert name_at(second.address) == "i2"


def test_a_host_that_has_ended_is_off_the_network_whatever_its_kernel_still_has_to_send() -> None:
    python = getattr(sys, "_base_executable", sys.executable)
    with Testbed(0) as bed:
        bed.join_network("172.31.255.254", 16)
        first, second = bed.boot("i1", "172.31.0.7", 16), bed.boot("i2", "172.31.99.7", 16)
        taker = second.popen([python, "-c", _TAKE, second.address], stdout=subprocess.PIPE, text=True)
        assert taker.stdout.readline() == "ready\n"
        sender = first.popen(
            [python, "-c", _SEND, second.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert sender.stdout.readline() == "connected\n"
        bed.cut_off(second)
        sender.communicate("\n", timeout=60)
        bed.end(first)
        with bed.inside():
            links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        assert " i1@" not in links
        assert " i2@" in links
        bed.end(second)
        taker.communicate(timeout=60)


def test_a_killed_owner_takes_its_hosts_along() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, ROOT], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as owner:
        place, *holders = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    try:
        assert eventually(lambda: not any(psutil.pid_exists(int(pid)) for pid in holders))
    finally:
        subprocess.run(["rm", "-r", place], check=True)  # an empty folder: nothing is mounted on it outside
