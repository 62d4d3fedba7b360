"""Local testing mode: the same applications in this process, without a cluster."""

import asyncio

from ray import serve
from ray.serve.handle import DeploymentResponse


@serve.deployment
class Adder:
    def __init__(self, step):
        self.step = step
        self.calls = 0

    def reconfigure(self, config):
        self.step = config["step"]

    def add(self, number):
        self.calls += 1
        return number + self.step

    async def seen(self):
        return self.calls


@serve.deployment
class Pipeline:
    def __init__(self, first, second):
        self.first = first
        self.second = second

    async def __call__(self, number):
        return await self.second.add.remote(self.first.add.remote(number))

    async def many(self, count):
        for number in range(count):
            yield await self.first.add.remote(number)

    def fails(self):
        raise LookupError("an error of the user")


@serve.deployment
def twice(word):
    return word * 2


handle = serve.run(
    Pipeline.bind(Adder.bind(1), Adder.options(user_config={"step": 100}).bind(2)), _local_testing_mode=True
)
response = handle.remote(5)
print(isinstance(response, DeploymentResponse), response.result())
print("in order:", [each.result() for each in [handle.remote(number) for number in range(4)]])
print("stream:", list(handle.options(stream=True).many.remote(4)))
try:
    handle.fails.remote().result()
except LookupError as error:
    print("error:", error)


async def main():
    stream = handle.options(stream=True, method_name="many").remote(2)
    return await handle.remote(10), [number async for number in stream]


print("asyncio:", asyncio.run(main()))
word = serve.run(twice.bind(), name="words", _local_testing_mode=True)
print("function:", word.remote("ab").result())
