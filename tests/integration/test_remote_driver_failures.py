"""Programs that drive a cluster through `ray://`: failures, cuts, ends, and refusals."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import grpc
import msgspec
import pytest

from runtime._remote_driver import frames
from runtime._remote_driver.link import SERVICE
from runtime._remote_driver.messages import PROTOCOL, Greeting
from runtime._wire.handshake import Handshake
from tests.integration.remote_heads import Path, RemoteHead, remote_head
from tests.polling import eventually


@pytest.fixture(scope="module")
def head() -> Iterator[RemoteHead]:
    with remote_head() as head:
        yield head


@pytest.fixture
def path(head: RemoteHead) -> Iterator[Path]:
    path = Path(head.address)
    yield path
    path.close()


def test_a_driver_process_that_fails_tells_its_program_why(head: RemoteHead) -> None:
    program = """
        import runtime as ray
        from runtime import exceptions
        from runtime._process import core_worker
        ray.init()
        core_worker.current().link._stream._sent += 1  # as if a message had been lost
        for work in (ray.cluster_resources, lambda: ray.put(1)):
            try:
                work()
                raise AssertionError
            except exceptions.RaySystemError as error:
                assert "The driver process on the head failed" in str(error), error
                assert "StreamBroken" in str(error), error
        print("done")
    """
    assert head.run(program) == "done\n"


def test_an_answer_that_cannot_be_understood_is_an_error_once(head: RemoteHead) -> None:
    process = head.start("""
        import runtime as ray
        from runtime import exceptions
        from runtime._process import core_worker
        ray.init()

        def receive(body):
            raise ValueError("what is this?")

        core_worker.current().link._stream.receive = receive
        try:
            ray.cluster_resources()
        except exceptions.RaySystemError as error:
            print(error)
    """)
    out, err = process.communicate(timeout=120)
    assert "a message of the head cannot be handled (ValueError: what is this?)" in out, err
    assert "Reconnecting" not in err


def test_a_driver_process_that_is_killed_is_an_error_that_says_so(head: RemoteHead) -> None:
    others = set(head.drivers())  # of programs that ended abruptly: they wait for them for 30 s
    process = head.start(WAITING)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        [driver] = set(head.drivers()) - others
        os.kill(driver, signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert "its driver process was killed by SIGKILL" in out, out + err
    assert out.endswith("puts fail, too\n")


CUT = """
    import threading, time
    import runtime as ray
    ray.init(log_to_driver=False)

    @ray.remote(num_cpus=0, max_restarts=0)
    class Counter:
        def __init__(self):
            self.n = 0

        def add(self):
            self.n += 1
            return self.n

    counter = Counter.remote()
    kept = ray.put(b"kept" * 100_000)
    waiting = counter.add.remote()
    ray.get(waiting)
    print("begun", flush=True)
    done = []
    end = threading.Thread(target=lambda: done.append(input()))
    end.start()
    calls, results = 1, []
    while not done:
        refs = [counter.add.remote() for _ in range(20)]
        calls += 20
        results += ray.get(refs)
    assert results == list(range(2, calls + 1)), "a call was lost, or ran twice"
    assert ray.get(counter.add.remote()) == calls + 1
    assert ray.get(kept) == b"kept" * 100_000
    print("done")
"""


def test_a_cut_of_ten_seconds_loses_nothing_and_runs_nothing_twice(head: RemoteHead, path: Path) -> None:
    process = head.start(CUT, path.address)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)  # so that calls are under way
    path.cut()
    time.sleep(10)
    path.mend()
    time.sleep(1)
    for _ in range(5):  # and some that are over at once
        path.cut()
        path.mend()
        time.sleep(0.5)
    out, err = process.communicate("\n", timeout=120)
    assert out == "done\n", err
    assert "Reconnecting" in err


WAITING = """
    import runtime as ray
    from runtime import exceptions
    ray.init(log_to_driver=False)

    @ray.remote(num_cpus=0)
    def forever():
        import time
        time.sleep(1000)

    ref = forever.remote()
    print("begun", flush=True)
    try:
        ray.get(ref)
    except exceptions.RaySystemError as error:
        print(error)
    try:
        ray.put(1)
    except exceptions.RaySystemError as error:
        print("puts fail, too")
"""


def test_a_cut_that_lasts_is_an_error(head: RemoteHead, path: Path) -> None:
    process = head.start(WAITING, path.address, RAY_CLIENT_RECONNECT_GRACE_PERIOD="1")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    path.cut()
    out, err = process.communicate(timeout=120)
    assert "could not be made again within 1 s" in out, err
    assert out.endswith("puts fail, too\n")


@pytest.mark.parametrize("victim", ["agent", "server", "all"])
def test_the_head_is_killed(victim: str) -> None:
    with remote_head() as head:
        process = head.start(WAITING, RAY_CLIENT_RECONNECT_GRACE_PERIOD="2")
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for daemon in head.daemons if victim == "all" else [getattr(head, victim)]:
            daemon.kill()
        out, err = process.communicate(timeout=120)
        assert "head" in out, err
        assert out.endswith("puts fail, too\n"), out + err


def test_a_driver_process_goes_with_its_program() -> None:
    os.environ["RAY_CLIENT_RECONNECT_GRACE_PERIOD"] = "1"
    try:
        with remote_head() as head:
            process = head.start(WAITING)
            assert process.stdout is not None
            process.stdout.readline()
            assert len(head.drivers()) == 1
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert eventually(lambda: not head.drivers())
    finally:
        del os.environ["RAY_CLIENT_RECONNECT_GRACE_PERIOD"]


def test_another_secret_is_refused(head: RemoteHead) -> None:
    process = head.start("import runtime; runtime.init()", RAY_AUTH_TOKEN="0" * 64)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "ConnectionError: Failed to connect" in err
    assert "does not know the secret" in err
    assert eventually(lambda: not head.drivers())


def test_no_secret_is_a_clear_error(head: RemoteHead) -> None:
    process = head.start("import runtime; runtime.init()", RAY_AUTH_TOKEN_PATH="")
    _, err = process.communicate(timeout=120)
    assert "RAY_AUTH_TOKEN_PATH" in err.splitlines()[-1]


def test_nobody_at_the_address(head: RemoteHead) -> None:
    process = head.start("import runtime; runtime.init()", "127.0.0.1:1")
    _, err = process.communicate(timeout=120)
    assert "ConnectionError: Failed to connect" in err.splitlines()[-1]


def test_the_server_starts_no_driver_without_a_proof(head: RemoteHead) -> None:
    channel = grpc.insecure_channel(head.address)
    try:
        ours = Handshake(b"another secret", is_client=True)
        greeting = Greeting(ours.greeting, PROTOCOL, sys.version.split()[0], "")
        greet = channel.unary_unary(f"/{SERVICE}/Greet", None, None)
        greet(frames.encode([msgspec.msgpack.encode(greeting)]), timeout=60)
        for metadata in (
            (("session-bin", b"s" * 16),),
            (("session-bin", b"s" * 16), ("greeting-bin", ours.greeting), ("proof-bin", bytes(32))),
        ):
            call = channel.stream_stream(f"/{SERVICE}/Connect", None, None)(iter(()), metadata=metadata)
            with pytest.raises(grpc.RpcError) as refused:
                next(call)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    finally:
        channel.close()
    assert not head.drivers()


@pytest.mark.parametrize(
    ("protocol", "python", "says"),
    [(PROTOCOL, "3.1.4", "Python minor versions differ"), (PROTOCOL + 1, "", "clusterctl versions differ")],
)
def test_another_version_is_refused(head: RemoteHead, protocol: int, python: str, says: str) -> None:
    channel = grpc.insecure_channel(head.address)
    try:
        greeting = Greeting(
            Handshake(b"any", is_client=True).greeting, protocol, python or sys.version.split()[0], ""
        )
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(f"/{SERVICE}/Greet", None, None)(
                frames.encode([msgspec.msgpack.encode(greeting)]), timeout=60
            )
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert says in refused.value.details()
    finally:
        channel.close()


def test_a_program_of_another_minor_version_of_python_says_so(head: RemoteHead) -> None:
    process = head.start("""
        import runtime
        from runtime._remote_driver import versions
        versions.own_python = lambda: "3.1.4"
        runtime.init()
    """)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    last = err.splitlines()[-1]
    assert last.startswith("ConnectionError: Failed to connect")
    assert "Python minor versions differ" in last
    assert "3.1.4" in last
    assert sys.version.split()[0] in last
