"""The actor of a replica in a session: what the controller calls."""

import asyncio
import os

import pytest

import runtime
from runtime import cloudpickle, exceptions
from runtime.serve import context
from runtime.serve._core.specs import DeploymentOptions, DeploymentSpec
from runtime.serve._replica.actor import Replica
from tests.runtime.serve._replica.stand_in import TOKEN, Caller, until


@pytest.fixture(scope="module")
def session():
    runtime.init(num_cpus=1)
    yield
    runtime.shutdown()


def spec(target, *args, **options):
    options = DeploymentOptions(**options)
    return DeploymentSpec("D", cloudpickle.dumps(target), cloudpickle.dumps((args, {})), "v1", options)


def create(spec, unique="abc", rank=0, **session):
    cls = runtime.remote(Replica).options(num_cpus=0, max_concurrency=4)
    return cls.remote(f"app#D#{unique}", TOKEN, "app", spec, rank, session)


async def connected(ready):
    caller = Caller()
    await caller.connect(ready.unix)
    return caller


class Deployment:
    def __init__(self, folder):
        self.folder = folder
        self.config = None
        self.is_ill = False
        self.constructed_in = context.get_replica_context().replica_tag

    def reconfigure(self, config, rank):
        self.config = (config, rank.rank)

    async def what(self):
        replica = context.get_replica_context()
        return {
            "config": self.config,
            "pid": os.getpid(),
            "tag": self.constructed_in,
            "self": replica.servable_object is self,
            "rank": replica.rank.rank,
            "world": replica.world_size,
            "most": replica.max_ongoing_requests,
            "actor": runtime.get_runtime_context().get_actor_id(),
        }

    async def get(self, x):
        return await runtime.remote(lambda y: y + 1).options(num_cpus=0.1).remote(x)

    def fall_ill(self):
        self.is_ill = True

    async def check_health(self):
        if self.is_ill:
            raise RuntimeError("not well")

    async def __del__(self):
        os.mkdir(os.path.join(self.folder, "ended"))


@pytest.mark.usefixtures("session")
def test_a_replica_lives_as_the_controller_says(tmp_path):
    options = {"user_config": {"a": 1}, "num_replicas": 2, "max_ongoing_requests": 3}
    actor = create(spec(Deployment, str(tmp_path), **options), rank=1)
    ready = runtime.get(actor.start.remote())
    assert ready.has_check
    assert ready.docs_path is None
    assert ready.log_file == "serve/replica_app_D_abc.log"

    async def use():
        caller = await connected(ready)
        assert (await caller.welcome).slots == 3
        found = await caller.call("what")
        assert found == {
            "config": ({"a": 1}, 1),
            "pid": ready.pid,
            "tag": "abc",
            "self": True,
            "rank": 1,
            "world": 2,
            "most": 3,
            "actor": actor._actor_id.hex(),
        }
        assert await caller.call("get", 4) == 5
        await actor.reconfigure.remote(DeploymentOptions(user_config={"a": 2}, max_ongoing_requests=5), 0)
        found = await caller.call("what")
        assert (found["config"], found["rank"], found["most"]) == (({"a": 2}, 0), 0, 5)
        await actor.check_health.remote()
        await caller.call("fall_ill")
        with pytest.raises(RuntimeError, match="not well"):
            await actor.check_health.remote()
        with pytest.raises(exceptions.ActorDiedError):
            await actor.drain.remote(5)
        await asyncio.wait_for(caller.lost, 10)

    asyncio.run(use())
    assert (tmp_path / "ended").exists()
    runtime.kill(actor)


@pytest.mark.usefixtures("session")
def test_what_a_constructor_raises_comes_from_start():
    class Broken:
        def __init__(self):
            raise FileNotFoundError("no weights")

    actor = create(spec(Broken))
    with pytest.raises(FileNotFoundError, match="no weights") as caught:
        runtime.get(actor.start.remote())
    assert isinstance(caught.value, exceptions.RayTaskError)
    assert "in __init__" in str(caught.value)
    runtime.kill(actor)


@pytest.mark.usefixtures("session")
def test_a_user_config_needs_a_method_that_takes_it():
    async def function():
        return 1

    actor = create(spec(function, user_config={"a": 1}))
    with pytest.raises(exceptions.RayTaskError, match="no method `reconfigure`"):
        runtime.get(actor.start.remote())
    runtime.kill(actor)


class Controller:
    def __init__(self):
        self.loads = []

    def record_load(self, load):
        self.loads.append((load.replica, load.ongoing, load.metrics))

    def all(self):
        return self.loads


@pytest.mark.usefixtures("session")
def test_the_controller_hears_of_the_load():
    from runtime.serve._core.published import CONTROLLER, NAMESPACE

    class Busy:
        def __init__(self):
            from runtime.serve._replica import actor

            actor.REPEAT_S = 0.1

        async def wait(self):
            await asyncio.Event().wait()

        def record_autoscaling_stats(self):
            return {"size": 7}

    named = runtime.remote(Controller).options(name=CONTROLLER, namespace=NAMESPACE, num_cpus=0)
    controller = named.remote()
    actor = create(spec(Busy), scales=True)
    ready = runtime.get(actor.start.remote())

    async def use():
        caller = await connected(ready)
        await caller.begin_call("wait")
        await caller.begin_call("wait")
        loads = lambda: runtime.get(controller.all.remote())  # noqa: E731
        await until(lambda: ("app#D#abc", 2, {"size": 7}) in loads())
        nonlocal controller
        runtime.kill(controller)
        controller = named.remote()  # it hears of what has not changed, too
        await until(lambda: loads() and loads()[-1] == ("app#D#abc", 2, {"size": 7}))
        caller.connection.close()
        await until(lambda: loads()[-1][1] == 0)

    asyncio.run(use())
    runtime.kill(actor)
    runtime.kill(controller)


class Picky:
    config = None

    def reconfigure(self, config):
        if self.config == "stubborn" or config == "bad":
            raise ValueError(f"not {config}")
        self.config = config

    async def get(self):
        return self.config, context.get_replica_context().max_ongoing_requests


@pytest.mark.usefixtures("session")
def test_options_that_fail_are_taken_back():
    actor = create(spec(Picky, user_config="first", max_ongoing_requests=2))
    ready = runtime.get(actor.start.remote())

    def reconfigure(config):
        options = DeploymentOptions(user_config=config, max_ongoing_requests=3)
        return runtime.get(actor.reconfigure.remote(options, 0))

    async def get():
        caller = await connected(ready)
        found = await caller.call("get")
        caller.connection.close()
        return found

    assert "ValueError: not bad" in reconfigure("bad")
    assert asyncio.run(get()) == ("first", 2)
    assert reconfigure("stubborn") == ""
    assert asyncio.run(get()) == ("stubborn", 3)
    with pytest.raises(ValueError, match="not stubborn"):
        reconfigure("another")
    runtime.kill(actor)
