"""`@serve.multiplexed`: which models are kept, when they go, what callers hear."""

import asyncio
import gc

import pytest

from runtime.serve import context, multiplex
from runtime.serve._wire.messages import Models
from tests.runtime.serve._replica.stand_in import serving, until

gone = []


class Model:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        gone.append(self.name)


class AsyncModel(Model):
    async def __del__(self):
        gone.append(f"async {self.name}")


class Deployment:
    def __init__(self):
        self.loads = []

    @multiplex.multiplexed(max_num_models_per_replica=2)
    async def get_model(self, model_id: str):
        self.loads.append(model_id)
        await asyncio.sleep(0)
        if model_id == "bad":
            raise ValueError("no such model")
        return AsyncModel(model_id) if model_id == "async" else Model(model_id)

    async def name(self):
        model = await self.get_model(context.get_multiplexed_model_id())
        return model.name

    async def loaded(self):
        return self.loads


@pytest.fixture(autouse=True)
def _nothing_is_gone():
    gone.clear()


def test_the_least_recently_used_model_goes():
    async def main():
        async with serving(Deployment) as (_, caller):
            for model in ("a", "b", "a", "c", "a"):
                assert await caller.call("name", model=model) == model
            assert gone == ["b"]
            assert await caller.call("loaded") == ["a", "b", "c"]
            assert await caller.call("name", model="async") == "async"
            assert await caller.call("name", model="d") == "d"
            assert await caller.call("name", model="e") == "e"
        assert sorted(gone[:4]) == sorted(["b", "c", "a", "async async"])
        assert sorted(gone[4:]) == ["d", "e"]

    asyncio.run(main())


def test_an_async_end_waits_for_the_requests_that_use_the_model(recwarn):
    used = []

    class Uses(Deployment):
        def __init__(self):
            super().__init__()
            self.goes_on = asyncio.Event()

        async def use(self):
            model = await self.get_model(context.get_multiplexed_model_id())
            await self.goes_on.wait()
            used.append((model.name, list(gone)))

        async def end(self):
            self.goes_on.set()

    async def main():
        async with serving(Uses) as (_, caller):
            number = await caller.begin_call("use", model="async")
            for model in ("a", "b"):
                assert await caller.call("name", model=model) == model
            assert gone == []
            await caller.call("end")
            await caller.next(number)
            assert used == [("async", [])]
            await until(lambda: gone == ["async async"])

    asyncio.run(main())
    gc.collect()
    assert [str(each.message) for each in recwarn if "never awaited" in str(each.message)] == []
    assert gone.count("async async") == 1


def test_requests_at_the_same_time_load_a_model_once_and_a_failure_is_tried_again():
    async def main():
        async with serving(Deployment) as (_, caller):
            numbers = [await caller.begin_call("name", model="a") for _ in range(4)]
            for number in numbers:
                await caller.next(number)
            for _ in range(2):
                with pytest.raises(ValueError, match="no such model"):
                    await caller.call("name", model="bad")
            with pytest.raises(ValueError, match="cannot be empty"):
                await caller.call("name")
            assert await caller.call("loaded") == ["a", "bad", "bad"]

    asyncio.run(main())


def test_callers_hear_of_the_models():
    async def main():
        async with serving(Deployment) as (service, caller):
            multiplex.changed = service.tell_models
            try:
                for model in ("a", "b", "c"):
                    await caller.call("name", model=model)
                await until(lambda: caller.others and sorted(caller.others[-1].ids) == ["b", "c"])
                assert all(isinstance(message, Models) for message in caller.others)
            finally:
                multiplex.changed = None

    asyncio.run(main())


@pytest.mark.parametrize(("most", "error"), [(0, ValueError), (-2, ValueError), ("3", TypeError)])
def test_wrong_numbers(most, error):
    with pytest.raises(error, match="max_num_models_per_replica"):
        multiplex.multiplexed(max_num_models_per_replica=most)


def test_only_async_functions_of_a_model_id():
    with pytest.raises(TypeError, match="async"):
        multiplex.multiplexed(lambda model_id: None)

    async def three(a, b, c):
        pass

    with pytest.raises(TypeError, match="model_id"):
        multiplex.multiplexed(three)


def test_outside_of_a_replica():
    @multiplex.multiplexed
    async def load(model_id):
        return model_id

    with pytest.raises(RuntimeError, match="only be used in a replica"):
        asyncio.run(load("a"))
