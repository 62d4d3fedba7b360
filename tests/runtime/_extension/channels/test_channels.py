"""Channels between real processes, on one node and, over TCP, on two."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from runtime import exceptions
from runtime._extension.channels import (
    ChannelClosedError,
    ChannelFailedError,
    ChannelTimeoutError,
    PeerLostError,
    Place,
    Reader,
    Writer,
    create,
    open_reader,
)
from tests.polling import eventually
from tests.runtime._extension.channels.peer import Peer

HERE = Place(b"here", "127.0.0.1", b"secret" * 5)
ELSEWHERE = Place(b"elsewhere", "127.0.0.1", b"secret" * 5)
WAIT_S = 60


@pytest.fixture(params=[HERE, ELSEWHERE], ids=["memory", "tcp"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where the peer is."""
    found: Place = request.param
    return found


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = _descriptors()
    yield
    assert eventually(lambda: _descriptors() <= before), sorted(os.listdir("/proc/self/fd"))
    assert eventually(lambda: not [t for t in threading.enumerate() if "channel" in t.name])


def _descriptors() -> int:
    import gc

    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def _pair(place: Place = HERE, capacity: int = 2, **options: Any) -> tuple[Writer, Reader]:
    """Both ends in this process."""
    writer = create("pair", ["test"], capacity, place=HERE, **options)
    return writer, open_reader(writer.address, "test", timeout_s=WAIT_S, place=place)


VALUES = [
    None,
    7,
    "text" * 10_000,
    {"a": [1, 2], "b": b"x" * 3_000_000},
    np.arange(10),
    np.arange(1_000_000, dtype=np.float64),
    [np.ones(5), np.ones(500_000), "both"],
    np.arange(12).reshape(3, 4)[:, ::2],
]


def test_values_go_there_and_back(place: Place) -> None:
    with create("there", ["peer"], 4, place=HERE) as writer, Peer("echo", writer.address, place) as peer:
        with open_reader(peer.hear(), "test", timeout_s=WAIT_S, place=HERE) as reader:
            for _ in range(3):
                for value in VALUES:
                    writer.put(value, WAIT_S)
                    _same(reader.take(WAIT_S), value)
            writer.close()
            with pytest.raises(ChannelClosedError, match="'peer' has closed"):
                reader.take(WAIT_S)
        assert isinstance(peer.hear(), ChannelClosedError)


def _same(one: Any, other: Any) -> None:
    if isinstance(other, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            _same(left, right)
    elif isinstance(other, np.ndarray):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    else:
        assert one == other


def test_arrays_are_read_in_place_and_stay_valid() -> None:
    writer, reader = _pair()
    arrays = []
    for number in range(10):  # five times the ring: who keeps arrays does not stop the writer
        writer.put(np.full(100_000, number), WAIT_S)
        arrays.append(reader.take(WAIT_S))
    assert all(not array.flags.writeable and not array.flags.owndata for array in arrays)
    assert [array[-1] for array in arrays] == list(range(10))
    writer.close()
    reader.close()
    assert [array[0] for array in arrays] == list(range(10))


def test_the_memory_does_not_grow_when_arrays_are_dropped() -> None:
    writer, reader = _pair()
    sizes = []
    for number in range(50):
        writer.put(np.full(100_000, number), WAIT_S)
        assert reader.take(WAIT_S)[7] == number
        sizes.append(os.fstat(writer._shared.memory.fd).st_size)
    assert sizes[-1] == sizes[5]
    writer.close()
    reader.close()


def test_the_slowest_reader_holds_the_writer_up(place: Place) -> None:
    writer = create("ring", ["quick", "slow"], 3, place=HERE)
    quick = open_reader(writer.address, "quick", timeout_s=WAIT_S, place=place)
    slow = open_reader(writer.address, "slow", timeout_s=WAIT_S, place=place)
    for number in range(3):
        writer.put(number, WAIT_S)
        assert quick.take(WAIT_S) == number
    with pytest.raises(ChannelTimeoutError, match="'slow'"):
        writer.put(3, 0.01)
    assert slow.take(WAIT_S) == 0
    writer.put(3, WAIT_S)
    assert [slow.take(WAIT_S) for _ in range(3)] == [1, 2, 3]
    for end in (writer, quick, slow):
        end.close()


def test_what_was_written_before_a_reader_comes(place: Place) -> None:
    writer = create("early", ["test"], 4, place=HERE)
    array = np.arange(100_000)
    writer.put(array, WAIT_S)
    writer.put(2, WAIT_S)
    writer.close()
    with open_reader(writer.address, "test", timeout_s=WAIT_S, place=place) as reader:
        _same(reader.take(WAIT_S), array)
        assert reader.take(WAIT_S) == 2
        with pytest.raises(ChannelClosedError):
            reader.take(WAIT_S)


def test_a_deadline() -> None:
    writer, reader = _pair()
    assert not reader.available
    with pytest.raises(ChannelTimeoutError, match="'writer'"):
        reader.take(0.01)
    with pytest.raises(TimeoutError):
        reader.take(0)
    writer.put(1, 0)
    assert reader.available
    assert reader.take(0) == 1
    writer.close()
    reader.close()


def test_a_killed_reader(place: Place) -> None:
    writer = create("there", ["peer", "test"], 1, place=HERE)
    other = open_reader(writer.address, "test", timeout_s=WAIT_S, place=place)
    with Peer("idle", writer.address, place) as peer:
        peer.hear()
        writer.put(1, WAIT_S)
        threading.Timer(0.1, peer.kill).start()
        with pytest.raises(PeerLostError, match="'peer'") as caught:
            writer.put(2, None)
        assert caught.value.peer == "peer"
        assert other.take(WAIT_S) == 1
        with pytest.raises(PeerLostError, match="'peer'"):
            other.take(None)
    writer.close()
    other.close()


def test_a_killed_writer(place: Place) -> None:
    with Peer("write_some", [1, np.ones(1000)], place, False) as peer:
        address = peer.hear()
        with open_reader(address, "test", timeout_s=WAIT_S, place=HERE) as reader:
            assert reader.take(WAIT_S) == 1
            peer.kill()
            if place is HERE:
                _same(reader.take(WAIT_S), np.ones(1000))  # was written before its end
            with pytest.raises(PeerLostError, match="'peer'"):
                [reader.take(None) for _ in range(2)]  # over TCP the array may have come
        with pytest.raises(PeerLostError):
            open_reader(address, "other", timeout_s=WAIT_S, place=HERE)


def test_a_failure_reaches_every_end(place: Place) -> None:
    writer = create("there", ["peer", "test"], 1, place=HERE)
    other = open_reader(writer.address, "test", timeout_s=WAIT_S, place=place)
    with Peer("fail_at_once", writer.address, place) as peer:
        for wait in (lambda: other.take(None), lambda: [writer.put(n, None) for n in range(3)]):
            with pytest.raises(ChannelFailedError, match="of the peer") as caught:
                wait()
            assert isinstance(caught.value.cause, ZeroDivisionError)
            assert caught.value.by == "peer"
        assert isinstance(peer.hear().cause, ZeroDivisionError)
    writer.close()
    other.close()


def test_a_reader_that_fails_the_channel_ends_its_own_wait_in_another_thread(place: Place) -> None:
    writer = create("there", ["test"], 1, place=HERE)
    reader = open_reader(writer.address, "test", timeout_s=WAIT_S, place=place)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            reader.take(WAIT_S)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.1)
    reader.fail(ZeroDivisionError("of the test"))
    thread.join(WAIT_S)
    assert isinstance(errors[0], ChannelFailedError)
    reader.close()
    writer.close()


def test_who_made_the_channel_is_told_of_its_failure(place: Place) -> None:
    told: list[Exception] = []
    with create("there", ["peer"], place=HERE, on_failure=told.append) as writer:
        with Peer("idle", writer.address, place) as peer:
            peer.hear()
            assert not told
            peer.kill()
            assert eventually(lambda: bool(told))
        writer.fail(ValueError("later"))
    (error,) = told
    assert isinstance(error, PeerLostError)
    assert error.peer == "peer"


def test_what_was_written_before_a_failure_is_read_first(place: Place) -> None:
    writer, reader = _pair(place, capacity=3)
    for value in range(3):
        writer.put(value, WAIT_S)
    writer.fail(ValueError("why"))
    assert [reader.take(WAIT_S) for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(ChannelFailedError, match="why"):
            reader.take(WAIT_S)
    writer.close()
    reader.close()


def test_the_writer_fails(place: Place) -> None:
    class Local(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("stays here")

    with create("there", ["peer"], 1, place=HERE) as writer, Peer("echo", writer.address, place) as peer:
        peer.hear()
        writer.fail(Local("why"))
        writer.fail(ValueError("later"))
        assert "why" in str(peer.hear())
        with pytest.raises(ChannelFailedError, match="why"):
            writer.put(1, WAIT_S)


def test_a_reader_that_closes() -> None:
    writer, reader = _pair(capacity=1)
    writer.put(1, WAIT_S)
    reader.close()
    reader.close()
    with pytest.raises(ChannelClosedError, match="'test' reads no more"):
        writer.put(2, None)
    with pytest.raises(ChannelClosedError):
        reader.take(None)
    writer.close()


def test_closing_ends_the_wait_of_another_thread() -> None:
    writer, reader = _pair(capacity=1)
    writer.put(1, WAIT_S)
    caught: list[BaseException] = []

    def expect(wait: Any) -> threading.Thread:
        def run() -> None:
            try:
                wait()
            except ChannelClosedError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    thread = expect(lambda: writer.put(2, None))
    writer.close()
    thread.join(WAIT_S)
    assert reader.take(WAIT_S) == 1
    thread = expect(lambda: reader.take(None))
    reader.close()
    thread.join(WAIT_S)
    assert len(caught) == 2
    reader.close()
    writer.close()
    reader.close()


def test_values_that_cannot_be_pickled_or_unpickled() -> None:
    writer, reader = _pair()
    with pytest.raises(TypeError, match="a value for a channel"):
        writer.put(threading.Lock(), WAIT_S)

    writer.put(_Broken(), WAIT_S)
    writer.put(5, WAIT_S)
    with pytest.raises(exceptions.RaySystemError, match="broken there"):
        reader.take(WAIT_S)
    assert reader.take(WAIT_S) == 5
    writer.close()
    reader.close()


def _break() -> None:
    raise RuntimeError("broken there")


class _Broken:
    def __reduce__(self) -> Any:
        return _break, ()


def test_who_may_open_an_end(place: Place) -> None:
    writer, reader = _pair()
    with pytest.raises(ChannelClosedError, match="reads 'pair' already"):
        open_reader(writer.address, "test", timeout_s=WAIT_S, place=place)
    with pytest.raises(ChannelClosedError, match="no reader 'nobody'"):
        open_reader(writer.address, "nobody", timeout_s=WAIT_S, place=place)
    with pytest.raises(ValueError, match="different names"):
        create("wrong", ["a", "a"], place=HERE)
    writer.close()
    reader.close()
    with pytest.raises((ChannelClosedError, PeerLostError)):
        open_reader(writer.address, "test", timeout_s=WAIT_S, place=place)


def test_a_wrong_secret(caplog: pytest.LogCaptureFixture) -> None:
    stranger = Place(b"elsewhere", "127.0.0.1", b"guess")
    with create("there", ["test"], place=HERE) as writer:
        with pytest.raises(PeerLostError, match="secret"):
            open_reader(writer.address, "test", timeout_s=0.5, place=stranger)
        with open_reader(writer.address, "test", timeout_s=WAIT_S, place=ELSEWHERE) as reader:
            writer.put(1, WAIT_S)
            assert reader.take(WAIT_S) == 1
    assert "refused a reader of a channel" in caplog.text


def test_await(place: Place) -> None:
    async def main() -> None:
        with (
            create("there", ["peer"], 2, place=HERE) as writer,
            Peer("echo", writer.address, place) as peer,
            open_reader(peer.hear(), "test", timeout_s=WAIT_S, place=HERE) as reader,
        ):

            async def write() -> None:
                for number in range(40):
                    await writer.put_async(number, WAIT_S)

            task = asyncio.create_task(write())
            assert [await reader.take_async(WAIT_S) for _ in range(40)] == list(range(40))
            await task
            with pytest.raises(ChannelTimeoutError):
                await reader.take_async(0.01)
            waiting = asyncio.create_task(reader.take_async(None))
            await asyncio.sleep(0)
            peer.kill()
            with pytest.raises(PeerLostError):
                await waiting

    asyncio.run(main())


def test_a_forked_child_keeps_nothing_open(place: Place) -> None:
    others = _links_of_channels(os.getpid())  # of libraries that other tests have loaded
    writer, reader = _pair(place)
    release, hold = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hold)
        os.read(release, 1)  # lives until the parent says so
        os._exit(0)
    try:
        assert eventually(lambda: _links_of_channels(pid).items() <= others.items(), 10)
        writer.put(1, WAIT_S)
        assert reader.take(WAIT_S) == 1
    finally:
        os.close(hold)
        os.close(release)
        os.waitpid(pid, 0)
    writer.close()
    reader.close()


def test_a_child_that_is_forked_while_another_thread_serves_a_reader_keeps_nothing_open() -> None:
    others = _links_of_channels(os.getpid())
    for _ in range(100):
        writer, reader = _pair(ELSEWHERE)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if _links_of_channels(os.getpid()).items() <= others.items() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        writer.close()
        reader.close()


def test_a_forked_child_closes_nothing_that_took_the_place_of_a_channel() -> None:
    writer, reader = _pair()
    writer.close()
    reader.close()
    assert eventually(lambda: not [t for t in threading.enumerate() if "channel" in t.name])
    pipes = [os.pipe() for _ in range(4)]  # with the numbers that the channel had
    pid = os.fork()
    if pid == 0:
        try:
            for _, end in pipes:
                os.write(end, b"open")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    writer.close()
    for start, end in pipes:
        os.close(end)
        assert os.read(start, 100) == b"open"
        os.close(start)


def _links_of_channels(pid: int) -> dict[str, str]:
    links = {}
    for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it closes them just now
            links[path.name] = os.readlink(path)
    return {fd: link for fd, link in links.items() if "clusterctl-channel" in link or "eventfd" in link}


@pytest.mark.parametrize("count", range(6))
def test_a_reader_that_is_killed_at_any_point(count: int, place: Place) -> None:
    """It dies with values taken, untaken and held; the writer hears of it and gives everything back."""
    with (
        create("there", ["peer"], 3, place=HERE) as writer,
        Peer("take_some", writer.address, place, count) as peer,
    ):
        for number in range(count + 3):
            writer.put(np.full(50_000, number), WAIT_S)
        assert [int(array[0]) for array in peer.hear()] == list(range(count))
        peer.kill()
        with pytest.raises(PeerLostError):
            writer.put(0, None)


LEAVES_ENDS = """
from runtime._extension.channels import Place, create, open_reader, rendezvous

place = Place(b"node", "", b"")
writer = create("left", ["reader"], place=place)
reader = open_reader(writer.address, "reader", timeout_s=60, place=place)
writer.itself, reader.itself = writer, reader
for lock in (rendezvous._lock, writer._shared._lock):
    lock.acquire()
"""


def test_python_ends_although_a_thread_that_it_stops_holds_locks() -> None:
    subprocess.run([sys.executable, "-c", LEAVES_ENDS], check=True, timeout=WAIT_S)
