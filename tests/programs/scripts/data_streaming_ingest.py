"""Workers read disjoint streams of one data set, epoch by epoch."""

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=1)
class Worker:
    def __init__(self, rank):
        self.rank = rank

    def train(self, shard, epochs):
        history = []
        for _ in range(epochs):
            rows, total, sizes = 0, 0, set()
            for batch in shard.iter_batches(batch_size=16):
                rows += len(batch["id"])
                total += int(batch["id"].sum())
                sizes.add(len(batch["id"]))
            history.append((rows, total, max(sizes)))
        return self.rank, history


dataset = ray.data.range(256, override_num_blocks=8).map_batches(lambda batch: {"id": batch["id"] + 1})
workers = [Worker.remote(rank) for rank in range(2)]
shards = dataset.streaming_split(2, equal=True)
results = ray.get([worker.train.remote(shard, 2) for worker, shard in zip(workers, shards)])
for rank, history in sorted(results):
    print("rank", rank, "rows", [rows for rows, _, _ in history], "batch", {size for _, _, size in history})
for epoch in range(2):
    print("epoch", epoch, "sum", sum(history[epoch][1] for _, history in results))

uneven = ray.data.range(100, override_num_blocks=5).streaming_split(2)
results = ray.get([worker.train.remote(shard, 1) for worker, shard in zip(workers, uneven)])
print(
    "not equal:", sum(history[0][0] for _, history in results), sum(history[0][1] for _, history in results)
)

single = ray.data.range(10).iterator()
print("iterator:", sum(row["id"] for row in single.iter_rows()), sum(row["id"] for row in single.iter_rows()))
print(
    "last batch left out:",
    sum(len(b["id"]) for b in ray.data.range(10).iter_batches(batch_size=4, drop_last=True)),
)
mixed = ray.data.range(64).iter_batches(batch_size=8, local_shuffle_buffer_size=32, local_shuffle_seed=1)
ids = [int(i) for batch in mixed for i in batch["id"]]
print("shuffled locally:", sorted(ids) == list(range(64)), ids != sorted(ids))
frames = ray.data.range(6).iter_batches(batch_size=None, batch_format="pandas")
print("pandas:", sum(int(frame["id"].sum()) for frame in frames))


@ray.remote
def consume(dataset):
    return sum(len(batch["id"]) for batch in dataset.iter_batches())


print("in a task:", ray.get(consume.remote(ray.data.range(30))))
