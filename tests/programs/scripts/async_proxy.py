"""An async actor in front of synchronous ones: it fans requests out and gathers the answers."""

import asyncio

import ray

ray.init(num_cpus=4)


@ray.remote
class Backend:
    def __init__(self, name):
        self.name = name
        self.handled = 0

    def handle(self, path):
        self.handled += 1
        if path == "/broken":
            raise ValueError(f"{self.name} cannot serve {path}")
        return f"{self.name}:{path}"

    def load(self):
        return self.handled


@ray.remote
class Proxy:
    def __init__(self, backends):
        self.backends = backends
        self.next = 0
        self.open = 0
        self.most_open = 0

    def _choose(self):
        backend = self.backends[self.next % len(self.backends)]
        self.next += 1
        return backend

    async def request(self, path):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self._choose().handle.remote(path)
        except ValueError as error:
            return f"500 {error.args[0]}" if error.args else "500"
        finally:
            self.open -= 1

    async def broadcast(self, path):
        answers = await asyncio.gather(*[b.handle.remote(path) for b in self.backends])
        return sorted(answers)

    async def first(self, path):
        waiting = [asyncio.wrap_future(b.handle.remote(path).future()) for b in self.backends]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result().split(":")[1]

    async def stats(self):
        return self.most_open > 1, self.open


backends = [Backend.remote(f"b{i}") for i in range(3)]
proxy = Proxy.remote(backends)

answers = ray.get([proxy.request.remote(f"/{i}") for i in range(9)])
print(sorted(answer.split(":")[1] for answer in answers))
print(ray.get(proxy.broadcast.remote("/all")))
print(ray.get(proxy.first.remote("/any")))
broken = ray.get(proxy.request.remote("/broken"))
print(broken.startswith("500"), "cannot serve /broken" in broken)
print(ray.get([backend.load.remote() for backend in backends]))
print(ray.get(proxy.stats.remote()))
