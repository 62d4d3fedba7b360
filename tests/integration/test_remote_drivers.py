"""Programs outside the cluster drive it through `ray://`: the core API, and interrupts."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.integration.remote_heads import RemoteHead, remote_head
from tests.polling import eventually

README = pathlib.Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def head() -> Iterator[RemoteHead]:
    with remote_head() as head:
        yield head


def test_the_program_of_the_readme(head: RemoteHead) -> None:
    program = README.read_text().split("```python\n")[1].split("```")[0]
    assert head.run(program) == "[0, 1, 4, 9, 16, 25, 36, 49, 64, 81] 285\n"


CORE = """
    import asyncio, os
    import runtime as ray
    from runtime import exceptions

    context = ray.init(namespace="core")
    assert ray.is_initialized()

    class Mine:  # a class that the head cannot import
        def __init__(self, value):
            self.value = value

    @ray.remote
    def add(a, b=0):
        return a + b

    @ray.remote(num_returns=2)
    def two():
        return 1, 2

    @ray.remote
    def fail():
        raise KeyError("mine")

    @ray.remote
    def wrap(mine):
        return Mine(mine.value + 1)

    # tasks, options, references as arguments, at top level and inside
    assert ray.get(add.remote(1, b=add.remote(2))) == 3
    assert ray.get(add.options(num_cpus=2, name="named").remote(1)) == 1
    assert ray.get(list(two.remote())) == [1, 2]
    assert ray.get(wrap.remote(Mine(1))).value == 2
    nested = ray.put([add.remote(1), {"b": add.remote(2)}])
    one, other = ray.get(nested)
    assert ray.get([one, other["b"]]) == [1, 2]

    @ray.remote
    def read(refs):
        return ray.get(refs)
    assert ray.get(read.remote([one, other["b"]])) == [1, 2]
    try:
        ray.get(fail.remote())
        raise AssertionError
    except KeyError as error:
        assert isinstance(error, exceptions.RayTaskError)

    # wait, timeouts, cancel
    @ray.remote(num_cpus=0)
    def forever():
        import time
        time.sleep(1000)
    slow, quick = forever.remote(), add.remote(1)
    assert ray.wait([slow, quick], num_returns=1) == ([quick], [slow])
    assert ray.wait([slow], timeout=0) == ([], [slow])
    try:
        ray.get(slow, timeout=0.1)
        raise AssertionError
    except exceptions.GetTimeoutError:
        pass
    ray.cancel(slow, force=True)
    try:
        ray.get(slow)
        raise AssertionError
    except (exceptions.TaskCancelledError, exceptions.WorkerCrashedError):
        pass

    # actors
    @ray.remote(num_cpus=0)
    class Counter:
        def __init__(self, start):
            self.n = start

        def add(self, by=1):
            self.n += by
            return self.n

        def numbers(self, count):
            yield from range(count)

        def whoami(self):
            return ray.get_runtime_context().get_actor_id()
    counter = Counter.remote(ray.put(10))
    assert ray.get([counter.add.remote() for _ in range(100)])[-1] == 110
    assert ray.get(counter.whoami.remote()) == counter._actor_id.hex()
    named = Counter.options(name="the-counter", lifetime="detached").remote(0)
    assert ray.get(ray.get_actor("the-counter").add.remote(5)) == 5
    again = Counter.options(name="the-counter", get_if_exists=True).remote(0)
    assert ray.get(again.add.remote()) == 6

    @ray.remote
    def through(handle):
        return ray.get(handle.add.remote(100))
    assert ray.get(through.remote(counter)) == 210
    ray.kill(named)
    try:
        ray.get(named.add.remote())
        raise AssertionError
    except exceptions.RayActorError:
        pass
    try:
        ray.get_actor("nobody")
        raise AssertionError
    except ValueError:
        pass

    # generators, asyncio, futures
    stream = counter.numbers.options(num_returns="streaming").remote(5)
    assert [ray.get(ref) for ref in stream] == list(range(5))

    async def main():
        found = await asyncio.gather(*(add.remote(n) for n in range(10)))
        assert found == list(range(10))
        got = []
        async for ref in counter.numbers.options(num_returns="streaming").remote(3):
            got.append(await ref)
        assert got == [0, 1, 2]
    asyncio.run(main())
    assert add.remote(3).future().result(60) == 3

    # placement groups, cluster views, context
    from runtime.util.placement_group import placement_group, remove_placement_group
    from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    group = placement_group([{"CPU": 1}])
    assert ray.get(group.ready()).id == group.id
    assert ray.wait([group.ready()], timeout=60)[0]
    strategy = PlacementGroupSchedulingStrategy(group)
    assert ray.get(add.options(scheduling_strategy=strategy).remote(1)) == 1
    remove_placement_group(group)
    assert [node["Alive"] for node in ray.nodes()] == [True]
    assert ray.cluster_resources()["CPU"] == 2
    facts = ray.get_runtime_context()
    assert facts.namespace == "core"
    assert facts.get_node_id() == ray.nodes()[0]["NodeID"]
    assert facts.get_job_id() == counter._actor_id.job_id.hex()

    ray.shutdown()
    assert not ray.is_initialized()
    print("done")
"""


def test_the_core_api(head: RemoteHead) -> None:
    assert head.run(CORE).endswith("done\n")


def test_a_large_array_both_ways(head: RemoteHead) -> None:
    program = """
        import numpy as np
        import runtime as ray
        ray.init()
        sent = np.arange((100 << 20) // 8)

        @ray.remote
        def change(array):
            return array + 1

        ref = ray.put(sent)
        got = ray.get(ref)
        assert (got == sent).all() and not got.flags.writeable
        assert (ray.get(change.remote(ref)) == sent + 1).all()
        assert (ray.get(change.remote(sent)) == sent + 1).all()
        print("done")
    """
    assert head.run(program) == "done\n"


def test_arrays_are_aligned(head: RemoteHead) -> None:
    program = """
        import numpy as np
        import runtime as ray
        ray.init()
        values = [np.zeros(size, np.uint8) for size in (100, 200_000, 5_000_000)]
        for array in (*map(ray.get, map(ray.put, values)), *ray.get(ray.put(values))):
            assert array.ctypes.data % 64 == 0, array.nbytes
        print("done")
    """
    assert head.run(program) == "done\n"


def test_references_are_kept_and_let_go_of(head: RemoteHead) -> None:
    program = """
        import gc, time
        import runtime as ray
        from runtime.util import state
        ray.init()

        @ray.remote(num_cpus=0)
        class Actor:
            def f(self):
                return 1

        kept, gone = ray.put(bytes(1 << 20)), ray.put(bytes(1 << 20))
        actor = Actor.remote()
        assert ray.get(actor.f.remote()) == 1
        known = gone.hex()
        del gone, actor
        gc.collect()
        deadline = time.monotonic() + 60
        while True:
            objects = {found.object_id for found in state.list_objects(limit=10_000)}
            actors = {found.state for found in state.list_actors()}
            if known not in objects and actors <= {"DEAD"}:
                break
            assert time.monotonic() < deadline, (known in objects, actors)
            time.sleep(0.05)
        assert kept.hex() in objects
        assert len(ray.get(kept)) == 1 << 20
        print("done")
    """
    assert head.run(program) == "done\n"


def test_logs_of_workers_are_printed(head: RemoteHead) -> None:
    program = """
        import sys
        import runtime as ray
        ray.init()

        @ray.remote
        def say():
            print("to output")
            print("to errors", file=sys.stderr)

        ray.get(say.remote())
    """
    process = head.start(program)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "(say pid=" in out
    assert ") to output" in out
    assert ") to errors" in err


def test_working_dir_brings_modules_along(head: RemoteHead, tmp_path: pathlib.Path) -> None:
    (tmp_path / "only_here.py").write_text("class Value:\n    n = 42\n")
    program = f"""
        import sys
        import runtime as ray
        sys.path.insert(0, {str(tmp_path)!r})
        import only_here
        ray.init(runtime_env={{"working_dir": {str(tmp_path)!r}}})

        @ray.remote
        def value(given):
            assert given.n == 42
            return only_here.Value()

        print(ray.get(value.remote(only_here.Value())).n)
    """
    assert head.run(program) == "42\n"


def test_exceptions_to_retry_on_that_the_head_cannot_import_are_an_error(
    head: RemoteHead, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "mine_alone.py").write_text("class Mine(Exception):\n    pass\n")
    program = f"""
        import sys
        import runtime as ray
        sys.path.insert(0, {str(tmp_path)!r})
        import mine_alone
        ray.init()

        @ray.remote(retry_exceptions=[mine_alone.Mine])
        def one():
            return 1

        try:
            ray.get(one.remote(), timeout=60)
        except ModuleNotFoundError as error:
            print(error.name)
    """
    assert head.run(program) == "mine_alone\n"


def test_the_older_way_to_connect(head: RemoteHead) -> None:
    program = f"""
        import runtime as ray
        with ray.client("{head.address}").namespace("older").connect():
            print(ray.get_runtime_context().namespace, ray.get(ray.put(1)))
    """
    assert head.run(program, RAY_ADDRESS="") == "older 1\n"


def test_the_oldest_way_to_connect(head: RemoteHead) -> None:
    program = f"""
        import runtime as ray
        from runtime import util
        print(util.client.ray.is_connected(), util.client.num_connected_contexts())
        about = util.connect("{head.address}", namespace="oldest")
        print(about["num_clients"], about["ray_version"] == ray.__version__, util.client.ray.is_connected())
        print(ray.get_runtime_context().namespace, ray.get(ray.put(1)))
        util.disconnect()
        print(util.client.ray.is_connected(), ray.is_initialized())
    """
    assert head.run(program, RAY_ADDRESS="").splitlines() == [
        "False 0",
        "1 True True",
        "oldest 1",
        "False False",
    ]


def test_a_forked_child_has_no_connection_and_leaves_the_parents_alone(head: RemoteHead) -> None:
    program = """
        import os, sys
        import runtime as ray
        from runtime import exceptions
        ray.init()
        seven = ray.remote(lambda: 7)
        assert ray.get(seven.remote()) == 7
        pid = os.fork()
        if pid == 0:
            try:
                ray.get(seven.remote())
            except exceptions.RaySystemError:
                sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ray.get(seven.remote()))
    """
    assert head.run(program) == "3 7\n"


def test_init_in_a_forked_child_says_why_it_cannot_connect(head: RemoteHead) -> None:
    program = """
        import os, sys
        import runtime as ray
        ray.init()
        assert ray.get(ray.put(7)) == 7
        pid = os.fork()
        if pid == 0:
            try:
                ray.init(ignore_reinit_error=True)
            except ConnectionError as error:
                os._exit(3 if "spawn" in str(error) else 4)
            os._exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ray.get(ray.put(7)))
    """
    assert head.run(program) == "3 7\n"


def test_shutdown_leaves_no_call_of_grpc_for_the_end_of_the_interpreter(head: RemoteHead) -> None:
    program = """
        import gc
        gc.disable()
        import runtime as ray
        ray.init()
        import grpc
        ray.get(ray.put(1))
        ray.shutdown()
        print([found for found in gc.get_objects() if isinstance(found, (grpc.Call, grpc.aio.Call))])
    """
    assert head.run(program) == "[]\n"


def test_several_clients_at_once(head: RemoteHead) -> None:
    first = head.start("""
        import runtime as ray
        ray.init(namespace="shared")

        @ray.remote(num_cpus=0)
        class Box:
            def put(self, value):
                self.value = value

            def get(self):
                return self.value

        box = Box.options(name="box").remote()
        ray.get(box.put.remote("from the first"))
        print(ray.get_runtime_context().get_job_id(), flush=True)
        input()
        print(ray.get(box.get.remote()))
    """)
    assert first.stdout is not None
    job = first.stdout.readline().strip()
    second = head.run("""
        import runtime as ray
        ray.init(namespace="shared")
        box = ray.get_actor("box")
        print(ray.get_runtime_context().get_job_id(), ray.get(box.get.remote()))
        ray.get(box.put.remote("from the second"))
    """)
    assert second.split(" ", 1)[0] != job
    assert second.endswith(" from the first\n")
    out, err = first.communicate("\n", timeout=120)
    assert out == "from the second\n", err
    assert eventually(lambda: not head.drivers())


INTERRUPTED = """
    import os, pathlib, signal, sys, threading, time
    import runtime as ray
    ray.init()
    folder = pathlib.Path(sys.argv[1])

    @ray.remote(num_cpus=0)
    def items(folder):
        for number in range(4):
            while not (folder / str(number)).exists():
                time.sleep(0.01)
            yield number

    def calls():
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None:
            yield frame.f_code.co_name
            frame = frame.f_back

    def interrupt():
        while not {"__next__", "wait"} <= set(calls()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    stream, got = items.remote(folder), []
    for number in range(4):
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            next(stream)
            raise AssertionError("nothing has come yet")
        except KeyboardInterrupt:
            thread.join()
        assert not stream.is_finished()
        (folder / str(number)).touch()
        while number % 2 and not stream.next_ready():  # it comes before it is asked for again
            time.sleep(0.01)
        got.append(ray.get(next(stream)))
    assert got == [0, 1, 2, 3]
    assert list(stream) == []
    assert stream.is_finished()
    print("done")
"""


def test_ctrl_c_loses_no_item_of_a_generator(head: RemoteHead, tmp_path: pathlib.Path) -> None:
    program = INTERRUPTED.replace("sys.argv[1]", repr(str(tmp_path)))
    assert head.run(program) == "done\n"


def test_an_item_that_comes_late_wakes_an_asynchronous_reader(
    head: RemoteHead, tmp_path: pathlib.Path
) -> None:
    program = f"""
        import asyncio, pathlib, time
        import runtime as ray
        ray.init()
        go = pathlib.Path({str(tmp_path)!r}, "go")

        @ray.remote(num_cpus=0)
        def late(go):
            while not go.exists():
                time.sleep(0.01)
            yield 1

        async def main():
            stream = late.remote(go)
            asyncio.get_running_loop().call_later(0.5, go.touch)
            return [await ref async for ref in stream]

        print(asyncio.run(main()))
    """
    assert head.run(program) == "[1]\n"


def test_ctrl_c_in_a_large_put_leaves_nothing_on_the_head(head: RemoteHead) -> None:
    process = head.start("""
        import time
        import numpy as np
        import runtime as ray
        from runtime._process import core_worker
        from runtime._remote_driver import messages
        from runtime.util import state
        ray.init()
        core = core_worker.current()
        send, ask = core.link.send, core.ask_driver
        print("begun", flush=True)
        input()

        def send_half(message, waits=False):
            if isinstance(message, messages.Upload) and message.offset > 100 << 20:
                raise KeyboardInterrupt
            send(message, waits)

        def ask_and_leave(make, done=None):
            ask(make, done)
            raise KeyboardInterrupt

        array = np.zeros(200 << 20, np.uint8)
        for link, core.ask_driver in ((send_half, ask), (send, ask_and_leave)):
            core.link.send = link
            try:
                ray.put(array)
                raise AssertionError("it was not interrupted")
            except KeyboardInterrupt:
                pass
        core.ask_driver = ask
        print("interrupted", flush=True)
        input()  # its driver process is looked at until then
        deadline = time.monotonic() + 60
        while any(found.object_size > 1 << 20 for found in state.list_objects(limit=10_000)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        print("done")
    """)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        assert eventually(lambda: len(head.drivers()) == 1)  # those of other programs have ended
        [driver] = head.drivers()

        def private_bytes() -> int:
            fields = pathlib.Path(f"/proc/{driver}/statm").read_text().split()
            return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGESIZE")

        before = private_bytes()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "interrupted\n"
        assert eventually(lambda: private_bytes() < before + (50 << 20))
        out, err = process.communicate("\n", timeout=120)
        assert out == "done\n", err
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_while_a_message_is_sent_does_not_break_the_connection(head: RemoteHead) -> None:
    program = """
        import os, signal, time
        import runtime as ray
        from runtime._process import core_worker
        ray.init()
        stream = core_worker.current().link._stream
        number = stream.send

        def number_and_interrupt(message):
            body = number(message)
            stream.send = number
            os.kill(os.getpid(), signal.SIGINT)  # the message has its number, and is not sent yet
            return body

        try:
            stream.send = number_and_interrupt
            ray.put(1)
            time.sleep(60)
            raise AssertionError("the interrupt was lost")
        except KeyboardInterrupt:
            pass
        print(ray.get(ray.remote(lambda ref: ref + 1).remote(ray.put(1))))
    """
    assert head.run(program) == "2\n"


def test_importing_the_runtime_imports_no_grpc() -> None:
    program = "import sys, runtime; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
