"""A driver that lives in asyncio: awaits references, gathers, wraps futures, times out."""

import asyncio
import concurrent.futures

import ray

ray.init(num_cpus=4)


@ray.remote
def square(x):
    return x * x


@ray.remote
def fail():
    raise KeyError("k")


@ray.remote
class Turnstile:
    def __init__(self):
        self.event = asyncio.Event()

    async def wait(self):
        await self.event.wait()
        return "through"

    async def open(self):
        self.event.set()


async def main():
    print(await square.remote(3))
    print(await asyncio.gather(*[square.remote(i) for i in range(5)]))
    refs = [square.remote(i) for i in range(3)]
    done, pending = await asyncio.wait([asyncio.wrap_future(r.future()) for r in refs])
    print(sorted(f.result() for f in done), len(pending))
    try:
        await fail.remote()
    except KeyError as error:
        print("KeyError", isinstance(error, ray.exceptions.RayTaskError))
    results = await asyncio.gather(square.remote(2), fail.remote(), return_exceptions=True)
    print(results[0], isinstance(results[1], KeyError))

    turnstile = Turnstile.remote()
    waiting = turnstile.wait.remote()
    try:
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(waiting.future())), timeout=0.1)
    except asyncio.TimeoutError:
        print("timed out")
    await turnstile.open.remote()
    print(await waiting, await waiting)

    queue = asyncio.Queue()

    async def produce():
        for i in range(4):
            await queue.put(square.remote(i))
        await queue.put(None)

    async def consume():
        found = []
        while (ref := await queue.get()) is not None:
            found.append(await ref)
        return found

    _, found = await asyncio.gather(produce(), consume())
    print(found)
    for coroutine in asyncio.as_completed([asyncio.wrap_future(square.remote(i).future()) for i in range(1)]):
        print("completed", await coroutine)


asyncio.run(main())

futures = [square.remote(i).future() for i in range(4)]
print(all(isinstance(f, concurrent.futures.Future) for f in futures))
print(sorted(f.result(timeout=30) for f in concurrent.futures.as_completed(futures)))
failed = fail.remote().future()
print(type(failed.exception(timeout=30)).__name__)
