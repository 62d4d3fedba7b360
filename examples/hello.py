"""The smallest program: a function that runs somewhere else, many times at once."""

import os

import runtime as ray

ray.init()


@ray.remote
def square(x: int) -> tuple[int, int]:
    return x * x, os.getpid()


results = ray.get([square.remote(x) for x in range(10)])
print("squares:", [value for value, _ in results])
print("made by processes:", sorted({pid for _, pid in results}))
