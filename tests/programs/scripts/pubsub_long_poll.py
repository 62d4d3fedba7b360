"""Publish and subscribe by long polling on an async actor."""

import asyncio

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Hub:
    def __init__(self):
        self.versions = {}
        self.values = {}
        self.changed = asyncio.Condition()
        self.waiting = 0

    async def publish(self, key, value):
        async with self.changed:
            self.versions[key] = self.versions.get(key, 0) + 1
            self.values[key] = value
            self.changed.notify_all()
        return self.versions[key]

    async def listen(self, known, timeout=None):
        """Returns what is newer than `known` (key -> version), as soon as something is."""

        def news():
            return {k: (v, self.values[k]) for k, v in self.versions.items() if k in known and v > known[k]}

        async with self.changed:
            self.waiting += 1
            try:
                await asyncio.wait_for(self.changed.wait_for(news), timeout)
            except asyncio.TimeoutError:
                return {}
            finally:
                self.waiting -= 1
            return news()

    async def how_many_wait(self):
        return self.waiting


@ray.remote(num_cpus=0)
class Subscriber:
    def __init__(self, hub, *keys):
        self.hub = hub
        self.known = dict.fromkeys(keys, 0)
        self.seen = []

    async def run(self, until):
        while "stop" not in self.seen:
            for key, (version, value) in sorted((await self.hub.listen.remote(self.known)).items()):
                self.known[key] = version
                self.seen.append(value)
        return self.seen[-1] == until


hub = Hub.remote()
print("nothing new:", ray.get(hub.listen.remote({"a": 0}, timeout=0.05)))

subscribers = [Subscriber.remote(hub, "a"), Subscriber.remote(hub, "b"), Subscriber.remote(hub, "a", "b")]
running = [s.run.remote("stop") for s in subscribers]
while ray.get(hub.how_many_wait.remote()) < 3:
    pass

for key in "ab":
    for n in range(3):
        print(key, "version", ray.get(hub.publish.remote(key, n)))
ready, rest = ray.wait(running, num_returns=3, timeout=0.2)
print("stopped early:", len(ready))
for key in "ab":
    ray.get(hub.publish.remote(key, "stop"))
print(ray.get(running))
