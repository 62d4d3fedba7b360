"""Random order, samples and splits: what holds whatever the random numbers are."""

import ray

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data
dataset = ray.data.range(400, override_num_blocks=8)


def ids(dataset):
    return [row["id"] for row in dataset.take_all()]


shuffled = dataset.random_shuffle(seed=11)
order = ids(shuffled)
print("shuffled:", sorted(order) == list(range(400)), order != sorted(order))
print("the same again:", ids(dataset.random_shuffle(seed=11)) == order)
print("another seed:", ids(dataset.random_shuffle(seed=12)) != order)
print("far away:", sum(abs(place - value) > 20 for place, value in enumerate(order)) > 200)

half = dataset.random_sample(0.5, seed=3)
chosen = ids(half)
print("sample:", 120 < len(chosen) < 280, len(set(chosen)) == len(chosen), set(chosen) <= set(range(400)))
print("repeatable:", ids(dataset.random_sample(0.5, seed=3)) == chosen)
print("none and all:", dataset.random_sample(0.0).count(), dataset.random_sample(1.0).count())
try:
    dataset.random_sample(1.5)
except ValueError as error:
    print("too much:", type(error).__name__)

blocks = dataset.randomize_block_order(seed=5)
print("blocks:", sorted(ids(blocks)) == list(range(400)))

train, test = dataset.train_test_split(0.1, shuffle=True, seed=7)
left, right = ids(train), ids(test)
print("split:", len(left), len(right), set(left).isdisjoint(right), sorted(left + right) == list(range(400)))
try:
    dataset.train_test_split(1.5)
except ValueError as error:
    print("no such part:", type(error).__name__)

labelled = dataset.map(lambda row: {"id": row["id"], "label": "rare" if row["id"] % 10 == 0 else "common"})
a, b = labelled.train_test_split(0.25, stratify="label")
for name, part in (("train", a), ("test", b)):
    counts = {row["label"]: row["count()"] for row in part.groupby("label").count().take_all()}
    print("stratified", name, sorted(counts.items()))

seen = []
for batch in dataset.iter_batches(batch_size=50, local_shuffle_buffer_size=100, local_shuffle_seed=1):
    seen.extend(batch["id"].tolist())
print("local shuffle:", len(seen), sorted(seen) == list(range(400)), seen != sorted(seen))
epochs = [ids(dataset.random_shuffle()) for _ in range(2)]
print("epochs differ:", epochs[0] != epochs[1])
folds = dataset.split(4, equal=True)
print("folds:", [fold.count() for fold in folds], sum(fold.sum("id") for fold in folds))
