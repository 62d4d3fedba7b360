"""A distributed hash join: both tables are partitioned by key with several return values, and joined by partition."""

import zlib

import ray

PARTS = 4


def place(key):
    return zlib.crc32(str(key).encode()) % PARTS


@ray.remote(num_returns=PARTS)
def partition(rows):
    out = [[] for _ in range(PARTS)]
    for row in rows:
        out[place(row[0])].append(row)
    return out


@ray.remote
def join(split, *blocks):
    left, right = {}, []
    for block in blocks[:split]:
        for key, value in block:
            left.setdefault(key, []).append(value)
    for block in blocks[split:]:
        right.extend(block)
    return sorted((key, a, b) for key, b in right for a in left.get(key, ()))


ray.init(num_cpus=3)
users = [(i, f"user{i}") for i in range(20)]
orders = [(i * 7 % 25, i) for i in range(30)]
lefts = [partition.remote(users[i::3]) for i in range(3)]
rights = [partition.remote(orders[i::2]) for i in range(2)]
joined = [join.remote(3, *(b[p] for b in lefts), *(b[p] for b in rights)) for p in range(PARTS)]
rows = sorted(sum(ray.get(joined), []))
print(len(rows), rows[:4], rows[-2:])
print(rows == sorted((k, f"user{k}", v) for k, v in orders if k < 20))
