"""A token bucket as an async actor: callers wait in line for permission."""

import asyncio
import time

import ray

ray.init(num_cpus=4)


@ray.remote
class RateLimiter:
    def __init__(self, per_second, burst):
        self.period = 1.0 / per_second
        self.tokens = burst
        self.burst = burst
        self.granted = []
        self.lock = asyncio.Lock()
        self.last = time.monotonic()

    async def acquire(self, who):
        async with self.lock:
            while True:
                now = time.monotonic()
                earned = int((now - self.last) / self.period)
                if earned:
                    self.tokens = min(self.burst, self.tokens + earned)
                    self.last += earned * self.period
                if self.tokens > 0:
                    break
                await asyncio.sleep(self.period / 4)
            self.tokens -= 1
            self.granted.append(who)
        return len(self.granted)

    async def history(self):
        return list(self.granted)


@ray.remote
def client(name, limiter, calls):
    return [ray.get(limiter.acquire.remote(name)) for _ in range(calls)]


limiter = RateLimiter.remote(per_second=50, burst=3)
started = time.monotonic()
tickets = ray.get([client.remote(name, limiter, 5) for name in ("x", "y", "z")])
elapsed = time.monotonic() - started

history = ray.get(limiter.history.remote())
print("granted:", len(history), {name: history.count(name) for name in sorted(set(history))})
print("tickets are unique:", sorted(t for ts in tickets for t in ts) == list(range(1, 16)))
print("each client's tickets rise:", all(ts == sorted(ts) for ts in tickets))
# 15 calls, 3 at once, the others 20 ms apart
print("not too fast:", elapsed > 0.2)
