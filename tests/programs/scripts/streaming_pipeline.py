"""A pipeline of stages: a generator produces records, tasks transform them, an actor aggregates."""

import collections

import ray

ray.init(num_cpus=4)

LEVELS = ["debug", "info", "warning", "error"]


@ray.remote
def source(count, batch):
    records = []
    for i in range(count):
        records.append({"id": i, "level": LEVELS[i * 7 % 4], "bytes": i * 37 % 100})
        if len(records) == batch:
            yield records
            records = []
    if records:
        yield records


@ray.remote
def parse(records):
    return [(r["level"], r["bytes"]) for r in records if r["level"] != "debug"]


@ray.remote
def enrich(pairs, factor):
    return [(level.upper(), size * factor) for level, size in pairs]


@ray.remote
class Aggregator:
    def __init__(self):
        self.count = collections.Counter()
        self.bytes = collections.Counter()
        self.batches = 0

    def add(self, pairs):
        self.batches += 1
        for level, size in pairs:
            self.count[level] += 1
            self.bytes[level] += size
        return len(pairs)

    def report(self):
        return self.batches, sorted(self.count.items()), sorted(self.bytes.items())


aggregator = Aggregator.remote()
added = []
for batch_ref in source.remote(103, 10):
    added.append(aggregator.add.remote(enrich.remote(parse.remote(batch_ref), 2)))

print("batches:", len(added))
print("kept per batch:", ray.get(added))
batches, counts, sizes = ray.get(aggregator.report.remote())
print("seen:", batches)
for (level, n), (_, size) in zip(counts, sizes):
    print(f"{level:8} {n:3} records {size:5} bytes")
