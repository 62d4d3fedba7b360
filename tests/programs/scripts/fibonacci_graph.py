"""Fibonacci as a dynamic graph of tasks: by blocking, by references, by a memo actor."""

import ray

ray.init(num_cpus=4)


@ray.remote
def blocking(n):
    if n < 2:
        return n
    return sum(ray.get([blocking.remote(n - 1), blocking.remote(n - 2)]))


@ray.remote
def add(a, b):
    return a + b


def graph(n, nodes):
    """Builds the graph in the driver; every value is one node."""
    if n not in nodes:
        nodes[n] = ray.put(n) if n < 2 else add.remote(graph(n - 1, nodes), graph(n - 2, nodes))
    return nodes[n]


@ray.remote(num_cpus=0)
class Memo:
    def __init__(self):
        self.known = {0: 0, 1: 1}
        self.computed = 0

    async def get(self, n):
        if n not in self.known:
            import asyncio

            self.known[n] = asyncio.ensure_future(self.compute(n))
        value = self.known[n]
        return await value if hasattr(value, "__await__") else value

    async def compute(self, n):
        self.computed += 1
        a = await self.get(n - 1)
        b = await self.get(n - 2)
        return await add.remote(a, b)

    async def count(self):
        return self.computed


print("blocking:", [ray.get(blocking.remote(n)) for n in (1, 5, 7)])
nodes = {}
print("graph:", ray.get(graph(60, nodes)), "nodes:", len(nodes))
memo = Memo.remote()
print("memo:", ray.get(memo.get.remote(30)), "computed:", ray.get(memo.count.remote()))
