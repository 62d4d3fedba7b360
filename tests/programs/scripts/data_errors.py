"""What a program sees when its functions fail, and how failures are tolerated."""

import ray
from ray.exceptions import RayTaskError

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data
dataset = ray.data.range(40, override_num_blocks=8)


class BadReading(Exception):
    pass


def strict(row):
    if row["id"] == 13:
        raise BadReading(f"reading {row['id']} is broken")
    return row


def failure(action):
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


error = failure(lambda: dataset.map(strict).take_all())
print("map:", isinstance(error, RayTaskError), "reading 13 is broken" in str(error))
print("the class is told:", "BadReading" in str(error))
error = failure(lambda: dataset.map_batches(lambda batch: {"x": batch["nothing"]}).materialize())
print("batches:", isinstance(error, RayTaskError), "nothing" in str(error), "KeyError" in str(error))
error = failure(lambda: dataset.filter(lambda row: 1 / (row["id"] - 5) > 0).count())
print("filter:", "ZeroDivisionError" in str(error))


class Model:
    def __init__(self, path):
        raise FileNotFoundError(f"no model at {path}")

    def __call__(self, batch):
        return batch


error = failure(
    lambda: dataset.map_batches(Model, fn_constructor_args=["/models/m1"], concurrency=1).take_all()
)
print("constructor:", "no model at /models/m1" in str(error))

for wrong in (lambda row: 5, lambda row: [row]):
    error = failure(lambda wrong=wrong: dataset.map(wrong).take_all())
    print("not a row:", type(error).__name__ != "AssertionError")
error = failure(lambda: dataset.map_batches(lambda batch: [1, 2]).take_all())
print("not a batch:", "list" in str(error))
error = failure(lambda: dataset.map_batches(lambda batch: {"a": [1, 2], "b": [1]}).take_all())
print("lengths differ:", error is not None)
error = failure(lambda: dataset.sort("missing").take_all())
print("sort:", "missing" in str(error))
error = failure(lambda: dataset.select_columns(["missing"]).take_all())
print("select:", "missing" in str(error))
error = failure(lambda: dataset.groupby("missing").count().take_all())
print("groupby:", "missing" in str(error))
error = failure(lambda: dataset.map_batches(lambda batch: batch, batch_format="xml").take_all())
print("format:", type(error).__name__)
error = failure(lambda: ray.data.range(3).zip(ray.data.range(4)).take_all())
print("zip:", type(error).__name__ in ("ValueError", "RayTaskError(ValueError)"))

context = ray.data.DataContext.get_current()
context.max_errored_blocks = 1
survivors = ray.data.range(40, override_num_blocks=8).map(strict)
print("one block is left out:", len(survivors.take_all()))
context.max_errored_blocks = 0
print(
    "it is strict again:",
    isinstance(failure(lambda: ray.data.range(40).map(strict).take_all()), RayTaskError),
)


@ray.remote
def guarded():
    try:
        return len(ray.data.range(20).map(strict).take_all())
    except RayTaskError as error:
        return "BadReading" in str(error)


print("in a task:", ray.get(guarded.remote()))
