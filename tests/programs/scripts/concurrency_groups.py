"""Concurrency groups: slow and quick calls of one async actor do not hold each other up."""

import asyncio

import ray

ray.init(num_cpus=4)


@ray.remote(concurrency_groups={"io": 2, "compute": 1})
class Server:
    def __init__(self):
        self.released = set()
        self.now = {"io": 0, "compute": 0, "default": 0}
        self.most = dict(self.now)

    async def _work(self, group, wait):
        self.now[group] += 1
        self.most[group] = max(self.most[group], self.now[group])
        if wait:
            while group not in self.released:
                await asyncio.sleep(0.005)
        else:
            await asyncio.sleep(0.005)
        self.now[group] -= 1
        return group

    @ray.method(concurrency_group="io")
    async def fetch(self, wait=False):
        return await self._work("io", wait)

    @ray.method(concurrency_group="compute")
    async def crunch(self, wait=False):
        return await self._work("compute", wait)

    async def other(self):
        return await self._work("default", False)

    async def release(self, group):
        self.released.add(group)

    async def running(self):
        return dict(self.now)

    async def report(self):
        return self.most


server = Server.remote()
stuck = [server.crunch.remote(wait=True), server.crunch.remote(wait=True)]
print("io goes on:", ray.get([server.fetch.remote() for _ in range(4)]))
print("default goes on:", ray.get(server.other.remote()))
done, waiting = ray.wait(stuck, timeout=0.1)
print("compute is stuck:", len(done), len(waiting))
print("moved by option:", ray.get(server.other.options(concurrency_group="io").remote()))
while ray.get(server.running.remote())["compute"] != 1:
    pass
ray.get(server.release.remote("compute"))
print(ray.get(stuck))
ray.get([server.fetch.remote() for _ in range(12)])
most = ray.get(server.report.remote())
print("most at once:", most["io"], most["compute"])


@ray.remote(concurrency_groups={"a": 1, "b": 1})
class Threaded:
    def __init__(self):
        import threading

        self.event = threading.Event()

    @ray.method(concurrency_group="a")
    def wait(self):
        return self.event.wait(30)

    @ray.method(concurrency_group="b")
    def set(self):
        self.event.set()
        return "set"


threaded = Threaded.remote()
waiting = threaded.wait.remote()
print(ray.get(threaded.set.remote()), ray.get(waiting))
