"""The pool of processes that is like the standard library's."""

import os

import ray
from ray.util.multiprocessing import Pool, TimeoutError


def start(name):
    os.environ["GREETING"] = name


def greet(x):
    return f"{os.environ['GREETING']} {x}"


def add(a, b):
    return a + b


def fail(x):
    raise LookupError(x)


def slow(x):
    import time

    time.sleep(30)


if __name__ == "__main__":
    ray.init(num_cpus=3)
    with Pool(2, initializer=start, initargs=("hello",)) as pool:
        print(pool.map(greet, range(5)))
        print(pool.starmap(add, [(i, i) for i in range(4)], chunksize=2))
        print(list(pool.imap(greet, "abc")))
        print(sorted(pool.imap_unordered(greet, range(3))))
        print(pool.apply(add, (2,), {"b": 3}))
        result = pool.map_async(greet, [7, 8])
        result.wait()
        print(result.ready(), result.successful(), result.get())
        failing = pool.apply_async(fail, ("nothing",))
        try:
            failing.get()
        except LookupError as error:
            print("error", type(error).__name__, failing.successful())
        seen = []
        pool.apply_async(add, (1, 2), callback=seen.append).get()
        pool.apply_async(fail, (1,), error_callback=lambda e: seen.append(type(e).__name__)).wait()
        try:
            pool.apply_async(slow, (1,)).get(timeout=0.2)
        except TimeoutError:
            print("timed out")
        pool.terminate()
    try:
        pool.map(greet, [1])
    except ValueError as error:
        print(error)
