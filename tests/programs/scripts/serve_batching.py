"""`@serve.batch`: requests that arrive together are computed together, also in streams, by weight, and with errors."""

import asyncio
import socket

import httpx
import ray
from ray import serve


@serve.deployment(max_ongoing_requests=100)
class Vectors:
    def __init__(self):
        self.sizes = []
        self.weights = []
        self.streams = []

    @serve.batch(max_batch_size=4, batch_wait_timeout_s=60)
    async def double(self, numbers):
        self.sizes.append(len(numbers))
        return [2 * number for number in numbers]

    @serve.batch(max_batch_size=100, batch_wait_timeout_s=0.05)
    async def early(self, numbers):
        self.sizes.append(len(numbers))
        return [-number for number in numbers]

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=60)
    async def divide(self, above, below=None):
        if 0 in below:
            raise ZeroDivisionError("somebody in this batch divides by nothing")
        return [a / b for a, b in zip(above, below)]

    @serve.batch(max_batch_size=2, batch_wait_timeout_s=60)
    async def short(self, numbers):
        return numbers[:1]

    @serve.batch(
        max_batch_size=10, batch_wait_timeout_s=0.2, batch_size_fn=lambda texts: sum(map(len, texts))
    )
    async def shout(self, texts):
        self.weights.append(sum(map(len, texts)))
        return [text.upper() for text in texts]

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=60)
    async def count(self, limits):
        self.streams.append(len(limits))
        for number in range(max(limits)):
            yield [number if number < limit else StopIteration for limit in limits]

    async def counting(self, limit):
        async for number in self.count(limit):
            yield number

    async def one(self, number):
        return await self.double(number)

    async def seen(self):
        sizes, self.sizes = self.sizes, []
        return sizes

    async def all_weights(self):
        return self.weights

    async def all_streams(self):
        return self.streams

    async def resize(self, size, wait_s):
        self.double.set_max_batch_size(size)
        self.double.set_batch_wait_timeout_s(wait_s)

    async def __call__(self, request):
        return {"answer": await self.double(int(request.query_params["x"]))}


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
handle = serve.run(Vectors.bind())
seen = handle.seen


def together(method, *columns):
    responses = [method.remote(*row) for row in zip(*columns)]
    answers = []
    for response in responses:
        try:
            answers.append(response.result(timeout_s=60))
        except Exception as error:
            answers.append(type(error).__mro__[1].__name__ + ": " + str(error).splitlines()[-1])
    return answers


print("full batches:", together(handle.one, range(8)), seen.remote().result())
print("a rest after the timeout:", handle.early.remote(7).result(), seen.remote().result())
print("divided:", together(handle.divide, [6, 8, 9], [2, 4, 3]))
failed = together(handle.divide, [6, 8, 9], [2, 0, 3])
print("an error is everybody's:", [each.endswith("divides by nothing") for each in failed])
print("after it:", together(handle.divide, [1, 2, 3], [1, 1, 1]))
failed = together(handle.short, [1, 2])
print("too few results:", [isinstance(each, str) for each in failed])

answers = together(handle.shout, ["abcd", "efgh", "ij", "klmnopq", "rst"])
weights = handle.all_weights.remote().result()
print("by weight:", answers, max(weights) <= 10, sum(weights))

streams = [handle.options(stream=True).counting.remote(limit) for limit in (2, 4, 3)]
print("streams:", [list(stream) for stream in streams], handle.all_streams.remote().result())


async def over_http():
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=60) as client:
        answers = await asyncio.gather(*[client.get("/", params={"x": x}) for x in range(4)])
        return [answer.json()["answer"] for answer in answers]


print("over HTTP:", asyncio.run(over_http()), seen.remote().result())
handle.resize.remote(2, 60).result()
print("resized:", together(handle.one, range(6)), seen.remote().result())


for wrong in ({"max_batch_size": 0}, {"max_batch_size": 1.5}, {"batch_wait_timeout_s": -1}):
    try:
        serve.batch(**wrong)(lambda numbers: numbers)
    except (TypeError, ValueError) as error:
        print("refused:", sorted(wrong), type(error).__name__)
serve.shutdown()
