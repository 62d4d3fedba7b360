"""Segmented sieve of Eratosthenes: small primes are shared, segments are tasks."""

import math

import numpy as np
import ray

ray.init(num_cpus=4)

LIMIT = 200_000
SEGMENT = 25_000


def small_primes(limit):
    flags = np.ones(limit + 1, dtype=bool)
    flags[:2] = False
    for n in range(2, math.isqrt(limit) + 1):
        if flags[n]:
            flags[n * n :: n] = False
    return np.flatnonzero(flags)


@ray.remote
def sieve(low, high, primes):
    flags = np.ones(high - low, dtype=bool)
    for p in primes:
        p = int(p)
        if p * p >= high:
            break
        start = max(p * p, (low + p - 1) // p * p)
        flags[start - low :: p] = False
    return low + np.flatnonzero(flags)


@ray.remote
def count_twins(*segments):
    primes = np.concatenate(segments)
    return len(primes), int((np.diff(primes) == 2).sum()), primes[-1].item()


base = ray.put(small_primes(math.isqrt(LIMIT)))
segments = [
    sieve.remote(max(low, 2), min(low + SEGMENT, LIMIT + 1), base) for low in range(0, LIMIT + 1, SEGMENT)
]
total, twins, largest = ray.get(count_twins.remote(*segments))
print("primes:", total, "twins:", twins, "largest:", largest)
counts = [len(part) for part in ray.get(segments)]
print(counts, sum(counts))
