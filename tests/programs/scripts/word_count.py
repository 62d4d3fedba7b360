"""Word count by map and reduce over several return values per map task."""

import collections
import re

import ray

ray.init(num_cpus=4)

TEXT = """
The cat sat on the mat. The dog sat on the log. A cat and a dog met on the road;
the road was long, the day was warm. Cats like mats, dogs like logs, and roads like
nobody at all. On and on the road went, on and on, until the dog and the cat sat down.
""".strip()

NUM_REDUCERS = 3


def bucket(word):
    return sum(map(ord, word)) % NUM_REDUCERS


@ray.remote(num_returns=NUM_REDUCERS)
def map_words(lines):
    counts = [collections.Counter() for _ in range(NUM_REDUCERS)]
    for line in lines:
        for word in re.findall(r"[a-z]+", line.lower()):
            counts[bucket(word)][word] += 1
    return counts


@ray.remote
def reduce_words(*partial):
    total = collections.Counter()
    for counts in partial:
        total.update(counts)
    return total


lines = TEXT.splitlines() * 20
shards = [lines[i::5] for i in range(5)]
mapped = [map_words.remote(shard) for shard in shards]
reduced = ray.get([reduce_words.remote(*[parts[r] for parts in mapped]) for r in range(NUM_REDUCERS)])

assert not any(set(a) & set(b) for i, a in enumerate(reduced) for b in reduced[i + 1 :])
total = collections.Counter()
for counts in reduced:
    total.update(counts)

print("types:", {type(counts).__name__ for counts in reduced})
print("words:", sum(total.values()), "distinct:", len(total))
for word, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))[:10]:
    print(f"{count:4} {word}")
