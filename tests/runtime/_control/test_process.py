"""The real process over real TCP: starting, refusing, ending, being killed and coming back."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError, Channel
from runtime._transport.tcp import connect_tcp
from runtime._wire.messages.base import ErrorKind, Message, NodeInfo, WorkerAddress
from runtime._wire.messages.control import (
    ActorStarted,
    AddJob,
    GetClusterInfo,
    GetJob,
    GetNamedActor,
    GetNodes,
    KvGet,
    KvPut,
    NodeReport,
    RegisterActor,
    RegisterNode,
    StartActor,
    WatchActor,
)
from runtime._wire.messages.groups import GroupsReserved, ReserveGroups, WatchPlacementGroup
from tests.sim.control import specs
from tests.sim.control.agent import cpus

SECRET = b"0123456789abcdef" * 2


@dataclass
class Process:
    """A control store as a child process."""

    folder: pathlib.Path
    state: str = "state.sqlite"
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *more: str, port: int = 0) -> dict[str, str]:
        """Starts one and returns what it says when it is ready."""
        secret = self.folder / "secret"
        secret.write_bytes(SECRET)
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "runtime._control", "--session-dir", str(self.folder)]
        command += ["--secret-file", str(secret), "--state", str(self.folder / self.state)]
        command += ["--port", str(port), "--ready-fd", str(writer), *more]
        with open(self.folder / "log", "ab") as log:
            self.running.append(subprocess.Popen(command, pass_fds=[writer], stderr=log))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            words: dict[str, str] = json.loads(pipe.readline())
        return words

    def kill(self) -> None:
        self.running[-1].kill()
        self.running[-1].wait(60)


@pytest.fixture
def process(tmp_path: pathlib.Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    for child in made.running:
        child.kill()
        child.wait(60)


def node_info(node_id: bytes, total: dict[str, int]) -> NodeInfo:
    return NodeInfo(
        node_id=node_id,
        state="ALIVE",
        address="",
        unix_path="",
        host="127.0.0.1",
        host_name="h",
        is_head=True,
        session_dir="",
        total=total,
        available=total,
        labels={},
    )


class FakeAgent:
    """Says yes to everything, over a real connection that it opens again."""

    def __init__(self, address: str) -> None:
        self.node_id = specs.node_id(0)
        self.actors: list[tuple[bytes, WorkerAddress]] = []
        self.total = cpus(8)
        self.registrations = 0
        self.client = ControlClient.over_tcp(
            address, SECRET, self.handle, self.register, reconnect_timeout_s=60.0
        )

    async def register(self, channel: Channel) -> None:
        self.registrations += 1
        await channel.call(RegisterNode(node_info(self.node_id, self.total), self.actors))

    def handle(self, _: Channel, message: Message) -> Message | None:
        match message:
            case StartActor():
                address = WorkerAddress(os.urandom(28), self.node_id, "/w.sock")
                self.actors.append((message.spec.actor_id, address))
                return ActorStarted(address, 4711)
            case ReserveGroups():
                for group in message.groups:
                    for index, _ in group.bundles:
                        self.total = {**self.total, f"bundle_group_{index}_{group.pg_id.hex()}": 10_000_000}
                self.client.send(NodeReport(self.node_id, self.total, self.total, [], 0.0))
                return GroupsReserved([])
        return None


async def alive(client: ControlClient, number: int) -> object:
    version = -1
    async with asyncio.timeout(60):
        while True:
            info = await client.call(WatchActor(specs.actor_id(number), version))
            if info.state == "ALIVE":
                return info
            version = info.version


def test_says_where_it_listens_and_ends_on_sigterm(process: Process) -> None:
    words = process.start("--cluster-id", "c0ffee")
    assert words["cluster_id"] == "c0ffee"

    async def main() -> None:
        client = ControlClient.over_tcp(words["address"], SECRET)
        await client.start()
        info = await client.call(GetClusterInfo())
        assert (info.cluster_id, info.session_dir) == ("c0ffee", str(process.folder))
        process.running[0].send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.running[0].wait, 60)
        await client.close()

    asyncio.run(main())
    assert process.running[0].returncode == 0


def test_a_wrong_secret(process: Process) -> None:
    words = process.start()

    async def main() -> None:
        with pytest.raises(CallError) as caught:
            await ControlClient.over_tcp(words["address"], b"wrong").start()
        assert caught.value.kind == ErrorKind.INVALID
        assert "secret file" in caught.value.message

    asyncio.run(main())


def test_a_port_in_use_is_named(process: Process) -> None:
    port = int(process.start()["address"].rpartition(":")[2])
    process.state = "other.sqlite"
    words = process.start(port=port)
    assert f"port {port}" in words["error"]
    assert "another port" in words["error"]
    assert process.running[1].wait(60) == 1


def test_a_state_file_in_use_is_named(process: Process) -> None:
    process.start()
    words = process.start()
    assert "in use by another control store" in words["error"]
    assert process.running[1].wait(60) == 1


def test_the_state_of_another_cluster_is_refused(process: Process) -> None:
    process.start("--cluster-id", "one")
    process.kill()
    assert "not of two" in process.start("--cluster-id", "two")["error"]


def test_a_missing_secret_file_is_named(process: Process) -> None:
    missing = str(process.folder / "nothing")
    words = process.start("--secret-file", missing)
    assert missing in words["error"]


def test_killed_and_restarted_it_carries_on(process: Process) -> None:
    words = process.start()
    port = int(words["address"].rpartition(":")[2])

    async def main() -> None:
        agent = FakeAgent(words["address"])
        client = agent.client
        await client.start()
        job = await client.call(AddJob(agent.node_id, specs.DRIVER, 1, "ns", "x", "{}"))
        await client.call(KvPut("n", b"k", b"v"))
        await client.call(RegisterActor(specs.actor(1, name="a")))
        await client.call(specs.group(1, [{"CPU": 1}]))
        actor = await alive(client, 1)
        group = await client.call(WatchPlacementGroup(specs.group_id(1)))
        while group.state != "CREATED":
            group = await client.call(WatchPlacementGroup(specs.group_id(1), group.version))

        waiting = asyncio.ensure_future(
            client.call(WatchActor(specs.actor_id(1), 10**6, 60.0), timeout_s=1.0)
        )
        process.kill()
        again = await asyncio.to_thread(process.start, port=port)
        assert again == words

        assert (await client.call(KvGet("n", b"k"))).value == b"v"
        assert agent.registrations >= 2
        assert await client.call(GetJob(job.job_id)) == job
        assert await client.call(GetNamedActor("a", "ns")) == actor
        assert await client.call(WatchPlacementGroup(specs.group_id(1))) == group
        assert [node.state for node in (await client.call(GetNodes())).nodes] == ["ALIVE"]
        await client.call(RegisterActor(specs.actor(2)))
        await alive(client, 2)
        with pytest.raises(CallError):
            await waiting
        await client.close()

    asyncio.run(main())


def test_a_node_whose_port_refuses_connections_is_dead_before_its_time_to_come_back_is_over(
    process: Process,
) -> None:
    words = process.start()
    host, _, port = words["address"].rpartition(":")

    async def main(nobody: socket.socket) -> None:
        user = ControlClient.over_tcp(words["address"], SECRET)

        async def reason_for(number: int) -> str:
            info = node_info(specs.node_id(number), cpus(1))
            channel = await connect_tcp(host, int(port), SECRET, lambda _, __: None)
            at = f"127.0.0.1:{nobody.getsockname()[1]}"
            await channel.call(RegisterNode(msgspec.structs.replace(info, address=at)))
            channel.close()
            async with asyncio.timeout(60):
                while True:
                    nodes = (await user.call(GetNodes())).nodes
                    (node,) = [node for node in nodes if node.node_id == info.node_id]
                    if node.state == "DEAD":
                        return node.death_reason
                    await asyncio.sleep(0.02)

        await user.start()
        # Where this machine stands still for seconds, the time to come back may be over first.
        reasons = [await reason_for(number) for number in range(3)]
        assert "its agent's process has ended" in reasons
        await user.close()

    with socket.socket() as nobody:  # it has the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        asyncio.run(main(nobody))


def test_what_was_acknowledged_survives_a_kill_at_any_moment(process: Process) -> None:
    words = process.start()
    port = int(words["address"].rpartition(":")[2])

    async def main() -> None:
        acknowledged: list[int] = []
        client = ControlClient.over_tcp(words["address"], SECRET, reconnect_timeout_s=60.0)
        await client.start()

        async def write() -> None:
            for number in range(10**6):
                await client.call(KvPut("n", b"%d" % number, b"v"), retry=False)
                acknowledged.append(number)

        writers = [asyncio.ensure_future(write()) for _ in range(3)]
        while len(acknowledged) < 100:  # noqa: ASYNC110 - the kill may come at any moment
            await asyncio.sleep(0.001)
        process.kill()
        results = await asyncio.gather(*writers, return_exceptions=True)
        assert all(isinstance(result, CallError) for result in results)
        await asyncio.to_thread(process.start, port=port)
        for number in set(acknowledged):
            assert (await client.call(KvGet("n", b"%d" % number))).value == b"v"
        await client.close()

    asyncio.run(main())
