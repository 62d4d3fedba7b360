"""`serve.run(..., _local_testing_mode=True)`: applications in this process."""

import asyncio
import gc
import threading
import weakref

import pytest

from runtime.serve import context
from runtime.serve._local_testing import run_locally, stop_all
from runtime.serve.api import deployment
from runtime.serve.batching import batch
from runtime.serve.exceptions import RequestCancelledError
from runtime.serve.handle import DeploymentHandle, DeploymentResponse


@pytest.fixture(autouse=True)
def _end():
    yield
    stop_all()


ended = []


@deployment(user_config={"factor": 3})
class Back:
    def reconfigure(self, config):
        self.factor = config["factor"]

    async def times(self, x):
        return self.factor * x

    def items(self, n):
        yield from range(n)

    @batch(max_batch_size=2, batch_wait_timeout_s=60)
    async def together(self, xs):
        return [sum(xs)] * len(xs)

    async def forever(self):
        await asyncio.Event().wait()

    def fail(self):
        raise KeyError("broken")

    def __del__(self):
        ended.append("Back")


@deployment
class Front:
    def __init__(self, back, *, more):
        self.back = back
        self.more = more["handle"]

    async def __call__(self, x):
        replica = context.get_replica_context()
        one, two = await asyncio.gather(self.back.together.remote(x), self.more.together.remote(1))
        return (
            replica.deployment,
            replica.app_name,
            one + two,
            await self.back.times.remote(self.back.times.remote(x)),
        )


@pytest.fixture
def front():
    back = Back.bind()
    return run_locally(Front.bind(back, more={"handle": back}), "app")


def test_deployments_call_each_other(front):
    assert isinstance(front, DeploymentHandle)
    response = front.remote(2)
    assert isinstance(response, DeploymentResponse)
    assert response.result(timeout_s=10) == ("Front", "app", 6, 18)
    assert asyncio.run(wait(front.remote(2)))[2] == 6


async def wait(response):
    return await response


def test_streams_errors_and_cancels():
    handle = run_locally(Back.bind(), "back")
    assert list(handle.items.options(stream=True).remote(4)) == [0, 1, 2, 3]

    async def read():
        return [item async for item in handle.items.options(stream=True).remote(3)]

    assert asyncio.run(read()) == [0, 1, 2]
    with pytest.raises(KeyError, match="broken"):
        handle.fail.remote().result()
    with pytest.raises(TypeError, match="stream=True"):
        handle.items.remote(1).result()
    response = handle.forever.remote()
    with pytest.raises(TimeoutError):
        response.result(timeout_s=0)
    response.cancel()
    with pytest.raises(RequestCancelledError):
        response.result()
    assert response.cancelled()
    with pytest.raises(RuntimeError, match="not supported in local testing mode"):
        handle.times.remote(1)._to_object_ref_sync()


def test_a_constructor_that_fails_raises_at_once():
    @deployment
    class Fails:
        def __init__(self):
            raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"):
        run_locally(Fails.bind(), "fails")


def test_running_again_ends_the_one_before():
    ended.clear()
    run_locally(Back.bind(), "again")
    threads = threading.active_count()
    assert run_locally(Back.bind(), "again").times.remote(1).result() == 3
    assert ended[:1] == ["Back"]
    assert threading.active_count() <= threads + 1


def test_by_the_public_function():
    import runtime
    from runtime import serve

    handle = serve.run(Back.bind(), name="public", _local_testing_mode=True)
    assert handle.times.remote(2).result() == 6
    assert not runtime.is_initialized()


made = []


def note(instance):
    made.append(weakref.ref(instance))


@deployment
class Once:
    def __init__(self):
        note(self)

    def __call__(self):
        return 1

    def __del__(self):
        ended.append("Once")


def test_what_has_ended_is_not_kept():
    ended.clear()
    for _ in range(2):  # the second one takes the place of the first
        assert run_locally(Once.bind(), "once").remote().result() == 1
    stop_all()
    gc.collect()
    assert [each() for each in made] == [None, None]
    assert ended == ["Once", "Once"]
