"""References as futures of concurrent.futures and asyncio, mixed with local ones."""

import asyncio
import concurrent.futures

import ray


@ray.remote
def power(x, n):
    if n < 0:
        raise ArithmeticError("negative")
    return x**n


@ray.remote
class Slow:
    async def after(self, seconds, value):
        await asyncio.sleep(seconds)
        return value


async def gathered(actor):
    results = await asyncio.gather(
        power.remote(2, 5),
        actor.after.remote(0.01, "actor"),
        asyncio.sleep(0.01, "local"),
        return_exceptions=True,
    )
    print(results)
    mixed = await asyncio.gather(power.remote(2, -1), power.remote(3, 2), return_exceptions=True)
    print([type(m).__name__ if isinstance(m, Exception) else m for m in mixed])
    try:
        await asyncio.wait_for(actor.after.remote(60, "never"), 0.2)
    except asyncio.TimeoutError:
        print("timed out")
    order = []
    for future in asyncio.as_completed([actor.after.remote(0.3, "late"), actor.after.remote(0, "early")]):
        order.append(await future)
    print(order)
    done, pending = await asyncio.wait([asyncio.wrap_future(power.remote(5, 2).future())], timeout=60)
    print([d.result() for d in done], len(pending))


ray.init(num_cpus=3)
futures = [power.remote(i, 2).future() for i in range(4)]
done = concurrent.futures.wait(futures, timeout=60)
print(sorted(f.result() for f in done.done), len(done.not_done))
failing = power.remote(1, -1).future()
print(type(failing.exception(timeout=60)).__name__, isinstance(failing.exception(), ArithmeticError))
asyncio.run(gathered(Slow.remote()))
