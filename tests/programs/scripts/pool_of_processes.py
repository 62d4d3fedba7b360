"""multiprocessing.Pool, replaced by ray.util.multiprocessing.Pool."""

import os

import ray
from ray.util.multiprocessing import Pool

ray.init(num_cpus=4)


def square(x):
    return x * x


def power(base, exponent):
    return base**exponent


def fail(x):
    raise ValueError(f"cannot do {x}")


def initialize(value):
    os.environ["POOL_VALUE"] = str(value)


def with_state(x):
    return int(os.environ["POOL_VALUE"]) + x


with Pool(processes=3) as pool:
    print(pool.map(square, range(10)))
    print(pool.map(square, range(10), chunksize=4))
    print(pool.starmap(power, [(2, 3), (3, 2), (10, 0)]))
    print(pool.apply(power, (2, 10)), pool.apply(power, kwargs={"base": 3, "exponent": 3}))
    result = pool.apply_async(square, (12,))
    print(result.get(timeout=30), result.ready(), result.successful())
    print(pool.map_async(square, [1, 2, 3]).get())
    print(list(pool.imap(square, range(6), chunksize=2)))
    print(sorted(pool.imap_unordered(square, range(6))))
    seen = []
    pool.map_async(square, [4, 5], callback=lambda found: seen.append(sorted(found))).wait()
    pool.apply_async(square, (6,), callback=seen.append).wait()
    for _ in range(1000):
        if len(seen) == 2:
            break
        import time

        time.sleep(0.01)
    print(sorted(seen, key=str))
    try:
        pool.map(fail, [1])
    except ValueError as error:
        print("ValueError", "cannot do 1" in str(error))
    failed = pool.apply_async(fail, (2,))
    failed.wait()
    print(failed.ready(), failed.successful())

pool = Pool(2, initializer=initialize, initargs=(100,))
print(pool.map(with_state, [1, 2, 3]))
pool.close()
try:
    pool.map(square, [1])
except ValueError:
    print("closed")
pool.join()
