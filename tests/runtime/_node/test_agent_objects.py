"""The object store of real node agents, and transfers between them."""

from __future__ import annotations

import asyncio
import inspect
import mmap
import os

import pytest

from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Message, Ok, WorkerAddress
from runtime._wire.messages.node import (
    StoreAbort,
    StoreAdd,
    StoreAllot,
    StoreCreate,
    StoreFree,
    StorePin,
    StorePinned,
    StoreReturn,
    StoreSeal,
    StoreSettle,
    StoreStatus,
    StoreUnpin,
)
from tests.polling import eventually
from tests.runtime._node.world import STORE_BYTES, Client, MakeWorld

MIB = 1 << 20


def object_id(client: Client, number: int) -> bytes:
    return b"\0" * 20 + client.registered.job_id + number.to_bytes(4, "little")


def mapping(client: Client) -> mmap.mmap:
    fd = os.open(client.registered.store_path, os.O_RDWR)
    try:
        return mmap.mmap(fd, client.registered.store_capacity_bytes)
    finally:
        os.close(fd)


def mapped(path: str) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(fd, 0)
    finally:
        os.close(fd)


async def put(client: Client, number: int, data: bytes, owner: WorkerAddress | None = None) -> bytes:
    name = object_id(client, number)
    space = await client.channel.call(StoreCreate(name, len(data), owner or client.address))
    with mapping(client) as memory:
        memory[space.offset : space.offset + len(data)] = data
    client.channel.send(StoreSeal(name))
    return name


async def read(client: Client, name: bytes, locations: list[bytes]) -> bytes:
    pinned: StorePinned = await client.channel.call(StorePin(name, locations, 20.0))
    with mapping(client) as memory:
        return memory[pinned.offset : pinned.offset + pinned.size_bytes]


def test_what_one_process_writes_another_reads_in_place(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            writer, reader = await w.driver(agent), await w.driver(agent)
            name = await put(writer, 1, b"hello")
            assert await read(reader, name, [agent.config.node_id]) == b"hello"

    asyncio.run(scenario())


def test_a_reader_waits_for_the_writer(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            writer, reader = await w.driver(agent), await w.driver(agent)
            name = object_id(writer, 1)
            await writer.channel.call(StoreCreate(name, 10, writer.address))
            reading = asyncio.ensure_future(reader.channel.call(StorePin(name, [agent.config.node_id])))
            await reader.channel.call(StorePin(await put(reader, 2, b"x"), []))
            assert not reading.done()
            writer.channel.send(StoreSeal(name))
            assert (await reading).size_bytes == 10

    asyncio.run(scenario())


def test_an_object_that_is_nowhere_is_lost(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            with pytest.raises(CallError) as caught:
                await driver.channel.call(StorePin(object_id(driver, 1), [agent.config.node_id]))
            assert caught.value.kind == ErrorKind.LOST

    asyncio.run(scenario())


def test_a_second_copy_is_refused(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node())
            name = await put(driver, 1, b"x")
            with pytest.raises(CallError) as caught:
                await driver.channel.call(StoreCreate(name, 1, driver.address))
            assert caught.value.kind == ErrorKind.EXISTS

    asyncio.run(scenario())


def test_an_object_larger_than_the_store_is_written_to_a_file_and_pulled_from_it(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            first, second = await w.node(), await w.node()
            driver, other = await w.driver(first), await w.driver(second)
            name, size = object_id(driver, 1), STORE_BYTES + 1
            space = await driver.channel.call(StoreCreate(name, size, driver.address))
            with mapped(space.path) as file:
                file[:5], file[-5:] = b"hello", b"there"
            driver.channel.send(StoreSeal(name))
            pinned = await other.channel.call(StorePin(name, [first.config.node_id], 20.0))
            assert pinned.path != space.path
            with mapped(pinned.path) as file:
                assert (len(file), file[:5], file[-5:]) == (size, b"hello", b"there")

    asyncio.run(scenario())


def test_a_full_store_names_who_holds_it(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node())
            await put(driver, 1, bytes(60 * MIB))
            with pytest.raises(CallError, match=driver.address.worker_id.hex()[:12]) as caught:
                await driver.channel.call(StoreCreate(object_id(driver, 2), 8 * MIB, driver.address, 0.05))
            assert caught.value.kind == ErrorKind.FULL

    asyncio.run(scenario())


def test_a_creator_gets_its_turn_when_room_is_made(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node())
            name = await put(driver, 1, bytes(60 * MIB))
            second = object_id(driver, 2)
            waiting = asyncio.ensure_future(
                driver.channel.call(StoreCreate(second, 8 * MIB, driver.address, 20.0))
            )
            driver.channel.send(StoreUnpin([name]))
            driver.channel.send(StoreFree([name], []))
            assert (await waiting).offset == 0

    asyncio.run(scenario())


def test_an_object_sealed_between_the_request_and_its_turn(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            writer, reader = await w.driver(agent), await w.driver(agent)
            name = object_id(writer, 1)
            await writer.channel.call(StoreCreate(name, 10, writer.address))
            creator = next(e.creator for e in agent.store.index.entries() if e.object_id == name)
            answer = agent.objects.pin(reader.channel, StorePin(name, [agent.config.node_id]))
            assert inspect.isawaitable(answer)
            agent.store.seal(name, creator)
            assert isinstance(await answer, StorePinned)

    asyncio.run(scenario())


def test_a_reader_without_a_time_limit_waits_for_the_writer(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            writer, reader = await w.driver(agent), await w.driver(agent)
            name = object_id(writer, 1)
            await writer.channel.call(StoreCreate(name, 10, writer.address))
            request = StorePin(name, [agent.config.node_id], None)
            reading = asyncio.ensure_future(reader.channel.call(request, timeout_s=None))
            await reader.channel.call(StorePin(await put(reader, 2, b"x"), []))
            writer.channel.send(StoreSeal(name))
            assert isinstance(await reading, StorePinned)

    asyncio.run(scenario())


def test_an_unsealed_object_goes_with_its_writer(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            writer = await w.driver(agent)
            await writer.channel.call(StoreCreate(object_id(writer, 1), 8 * MIB, writer.address))
            assert agent.is_busy()
            writer.channel.close()
            await w.until(lambda: agent.store.index.used_bytes == 0)

    asyncio.run(scenario())


def test_an_aborted_object_leaves_its_space(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            writer = await w.driver(agent)
            name = object_id(writer, 1)
            await writer.channel.call(StoreCreate(name, 8 * MIB, writer.address))
            writer.channel.send(StoreAbort(name))
            await w.until(lambda: agent.store.index.used_bytes == 0)

    asyncio.run(scenario())


def test_objects_go_with_their_owner(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            owner, writer = await w.driver(agent), await w.driver(agent)
            await put(writer, 1, b"x" * MIB, owner.address)
            writer.channel.send(StoreUnpin([object_id(writer, 1)]))
            owner.channel.close()
            await w.until(lambda: agent.store.index.used_bytes == 0)

    asyncio.run(scenario())


def test_an_object_is_copied_from_another_node_in_chunks(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(), await w.node()
            writer, reader = await w.driver(there), await w.driver(here)
            data = os.urandom(13 * MIB + 7)
            name = await put(writer, 1, data)
            assert await read(reader, name, [there.config.node_id]) == data
            entry = here.store.index.sealed(name)
            assert entry is not None
            assert not entry.primary

    asyncio.run(scenario())


def test_readers_share_one_transfer(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(), await w.node()
            writer, reader = await w.driver(there), await w.driver(here)
            name = await put(writer, 1, bytes(9 * MIB))
            pins = [reader.channel.call(StorePin(name, [there.config.node_id])) for _ in range(5)]
            offsets = {pinned.offset for pinned in await asyncio.gather(*pins)}
            assert len(offsets) == 1
            assert here.store.index.used_bytes == 9 * MIB

    asyncio.run(scenario())


def test_a_location_without_a_copy_is_followed_by_the_next(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, empty, there = await w.node(), await w.node(), await w.node()
            writer, reader = await w.driver(there), await w.driver(here)
            name = await put(writer, 1, b"found")
            locations = [b"d" * 28, empty.config.node_id, there.config.node_id]
            assert await read(reader, name, locations) == b"found"

    asyncio.run(scenario())


def test_an_object_that_is_freed_while_it_is_read_stays_in_place_until_then(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(), await w.node()
            writer, reader = await w.driver(there), await w.driver(here)
            data = os.urandom(30 * MIB)
            name = await put(writer, 1, data)
            reading = asyncio.ensure_future(read(reader, name, [there.config.node_id]))
            await w.until(lambda: here.store.is_being_written(name))
            there.store.free([name])
            writer.channel.send(StoreUnpin([name]))
            await put(writer, 2, bytes(30 * MIB))
            assert await reading == data
            await w.until(lambda: there.store.index.used_bytes == 30 * MIB)

    asyncio.run(scenario())


def test_a_source_that_breaks_off_is_followed_by_the_next(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, first, second = await w.node(), await w.node(), await w.node()
            writer, copier, reader = await w.driver(first), await w.driver(second), await w.driver(here)
            data = os.urandom(40 * MIB)
            name = await put(writer, 1, data)
            locations = [first.config.node_id, second.config.node_id]
            await read(copier, name, locations[:1])
            reading = asyncio.ensure_future(read(reader, name, locations))
            await w.until(lambda: here.store.is_being_written(name))
            source = next(agent for agent in (first, second) if agent.object_server.is_read(name))
            source.object_server.close()
            assert await reading == data

    asyncio.run(scenario())


def test_readers_share_out_the_copies_among_them(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, first, second = await w.node(), await w.node(), await w.node()
            writer, copier, reader = await w.driver(first), await w.driver(second), await w.driver(here)
            locations = [first.config.node_id, second.config.node_id]
            for number in range(100):
                name = await put(writer, number, b"x")
                await read(copier, name, locations[:1])
                await read(reader, name, locations)
                if here.config.node_id in second.object_server.readers():
                    break
            assert second.object_server.readers() == {here.config.node_id}

    asyncio.run(scenario())


def test_a_transfer_that_nobody_waits_for_any_more_leaves_nothing(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(), await w.node()
            writer, reader = await w.driver(there), await w.driver(here)
            name = await put(writer, 1, os.urandom(40 * MIB))
            with pytest.raises(CallError) as caught:
                await reader.channel.call(StorePin(name, [there.config.node_id], 0.0001))
            assert caught.value.kind == ErrorKind.TIMEOUT
            assert await read(reader, name, [there.config.node_id])
            writer.channel.send(StoreUnpin([name]))
            writer.channel.send(StoreFree([name], [there.config.node_id]))
            await w.until(lambda: there.store.index.used_bytes == 0)

    asyncio.run(scenario())


def test_copies_make_room_for_new_objects(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(), await w.node()
            writer, reader = await w.driver(there), await w.driver(here)
            name = await put(writer, 1, bytes(40 * MIB))
            await read(reader, name, [there.config.node_id])
            reader.channel.send(StoreUnpin([name]))
            await put(reader, 2, bytes(40 * MIB))
            assert here.store.index.sealed(name) is None

    asyncio.run(scenario())


def test_the_owner_frees_copies_everywhere(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(), await w.node()
            writer, reader = await w.driver(there), await w.driver(here)
            name = await put(writer, 1, bytes(MIB))
            await read(reader, name, [there.config.node_id])
            reader.channel.send(StoreUnpin([name]))
            writer.channel.send(StoreUnpin([name]))
            writer.channel.send(StoreFree([name], [here.config.node_id, there.config.node_id]))
            await w.until(lambda: here.store.index.used_bytes == there.store.index.used_bytes == 0)

    asyncio.run(scenario())


# ---------------------------------------------------------------- what processes place by themselves


class Placer(Client):
    """Keeps to itself what it has placed until the agent asks."""

    def __init__(self) -> None:
        super().__init__()
        self.unsaid: list[Message] = []
        self.asked = 0
        self.gives_back: list[tuple[int, int]] = []

    def _handle(self, channel: Channel, message: Message) -> Message | None:
        if not isinstance(message, StoreSettle):
            super()._handle(channel, message)
            return None
        self.asked += 1
        for said in self.unsaid:
            channel.send(said)
        self.unsaid.clear()
        if message.give_back:
            channel.send(StoreReturn(self.gives_back))
        return Ok()

    async def place(self, number: int, data: bytes, keeper: bytes = b"", owner: bytes = b"") -> bytes:
        name = object_id(self, number)
        ((offset, _),) = (await self.channel.call(StoreAllot(len(data), 1))).ranges
        with mapping(self) as memory:
            memory[offset : offset + len(data)] = data
        owner = owner or keeper or self.address.worker_id
        self.unsaid.append(StoreAdd(owner, self.registered.node_id, [(name, offset, len(data))], keeper))
        return name


async def used_bytes(client: Client) -> int:
    (store,) = (await client.channel.call(StoreStatus())).stores
    return store.used_bytes


def test_what_is_placed_is_found_before_it_is_said(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer, reader = await Placer().join(agent), await w.driver(agent)
            name = await placer.place(1, b"hello")
            assert await read(reader, name, [agent.config.node_id]) == b"hello"
            assert await read(reader, name, [agent.config.node_id]) == b"hello"
            assert placer.asked == 1

    asyncio.run(scenario())


def test_what_is_placed_is_found_by_other_nodes(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(), await w.node()
            placer, reader = await Placer().join(here), await w.driver(there)
            name = await placer.place(1, b"hello")
            assert await read(reader, name, [here.config.node_id]) == b"hello"

    asyncio.run(scenario())


def test_what_its_owner_frees_before_it_is_said_goes(world: MakeWorld) -> None:
    """A worker has placed a result, and its caller is done with it before the agent has heard of it."""

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer, caller = await Placer().join(agent), await w.driver(agent)
            node_id = agent.config.node_id
            name = await placer.place(1, b"hello", caller.address.worker_id)
            caller.channel.send(StoreUnpin([name]))
            caller.channel.send(StoreFree([name], [node_id]))
            name = await placer.place(2, b"hello", caller.address.worker_id)
            caller.channel.send(StoreFree([name], [node_id], unpinned=True))
            assert await used_bytes(caller) == 0
            assert placer.asked
            assert not agent.store.index.knows(name)

    asyncio.run(scenario())


def test_the_keeper_pins_what_was_placed_for_it(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer, caller = await Placer().join(agent), await w.driver(agent)
            name = await placer.place(1, b"hello", caller.address.worker_id)
            caller.channel.send(StoreFree([name], [agent.config.node_id]))
            assert await used_bytes(caller) > 0
            assert agent.store.index.knows(name)
            caller.channel.send(StoreUnpin([name]))
            assert await used_bytes(caller) == 0

    asyncio.run(scenario())


def test_what_was_placed_for_a_process_that_is_gone_goes(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer = await Placer().join(agent)
            await placer.place(1, b"hello", b"?" * 28)
            assert await used_bytes(placer) == 0
            assert not len(agent.store.index)

    asyncio.run(scenario())


def test_what_is_said_after_its_owners_death_goes_with_its_writers_pin(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer = await Placer().join(agent)
            name = await placer.place(1, b"hello", owner=b"?" * 28)
            assert await used_bytes(placer)
            placer.channel.send(StoreUnpin([name]))
            assert await used_bytes(placer) == 0
            assert not len(agent.store.index)

    asyncio.run(scenario())


def test_allotted_space_is_free_to_see_and_comes_back_when_it_is_wanted(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer, writer = await Placer().join(agent), await w.driver(agent)
            placer.gives_back = (await placer.channel.call(StoreAllot(MIB, 40))).ranges
            assert await used_bytes(writer) == 0
            name = object_id(writer, 1)
            space = await writer.channel.call(StoreCreate(name, STORE_BYTES - 8 * MIB, writer.address, 30.0))
            assert not space.path
            writer.channel.send(StoreAbort(name))
            assert await used_bytes(writer) == 0
            assert not agent.store.index.allotments

    asyncio.run(scenario())


def test_a_process_that_ends_leaves_nothing_of_what_it_was_allotted(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer, reader = await Placer().join(agent), await w.driver(agent)
            name = await placer.place(1, b"hello")
            await placer.channel.call(StoreAllot(MIB, 8))
            placer.channel.close()
            with pytest.raises(CallError):
                await read(reader, name, [agent.config.node_id])
            assert await asyncio.to_thread(eventually, lambda: not agent.store.index.allotments)
            assert agent.store.index.allocator.holes() == [(0, STORE_BYTES)]

    asyncio.run(scenario())


def test_space_that_is_not_the_processs_is_not_taken(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            placer = await Placer().join(agent)
            name = object_id(placer, 1)
            placer.channel.send(
                StoreAdd(placer.address.worker_id, placer.registered.node_id, [(name, 0, MIB)])
            )
            assert await used_bytes(placer) == 0
            assert not agent.store.index.knows(name)

    asyncio.run(scenario())
