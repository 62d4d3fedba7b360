"""Offline inference: a model that is loaded once per actor predicts batches of a table."""

import numpy as np
import pandas as pd
import ray

ray.init(num_cpus=4)


class Classifier:
    """Nearest centre; the centres are the model."""

    def __init__(self, classes, scale=1.0):
        angles = np.linspace(0, 2 * np.pi, classes, endpoint=False)
        self.centres = scale * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        self.batches = 0

    def __call__(self, batch, offset=0.0):
        self.batches += 1
        points = np.stack([batch["x"], batch["y"]], axis=1) + offset
        distances = np.linalg.norm(points[:, None] - self.centres[None], axis=2)
        batch["label"] = distances.argmin(axis=1)
        batch["distance"] = distances.min(axis=1).round(6)
        return batch


class Names:
    """Works on rows."""

    def __init__(self):
        self.names = ["east", "north", "west", "south"]

    def __call__(self, row):
        return {**row, "name": self.names[row["label"]]}


steps = np.arange(240)
points = ray.data.from_items(
    [{"id": int(i), "x": float(np.cos(i / 7)), "y": float(np.sin(i / 7))} for i in steps],
    override_num_blocks=6,
)
predictions = points.map_batches(
    Classifier,
    fn_constructor_args=[4],
    fn_constructor_kwargs={"scale": 0.5},
    fn_kwargs={"offset": 0.001},
    batch_size=32,
    concurrency=(1, 2),
    num_cpus=0.5,
).map(Names, concurrency=1, num_cpus=0.5)

rows = sorted(predictions.take_all(), key=lambda row: row["id"])
print("rows:", len(rows), sorted(rows[0]))
print("first:", [row["name"] for row in rows[:12]])
print("mean distance: %.4f" % np.mean([row["distance"] for row in rows]))


class Sizes:
    """How large the batches are that it gets."""

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"rows": [len(frame)], "mean": [frame["id"].mean()]})


sizes = points.repartition(1).map_batches(Sizes, batch_format="pandas", batch_size=100, concurrency=1)
print("batches:", sorted((int(row["rows"]), row["mean"]) for row in sizes.take_all()))


class Expander:
    def __call__(self, batch):
        for sign in (1, -1):
            yield {"id": batch["id"] * sign}


signed = points.map_batches(Expander, concurrency=2, num_cpus=0.5)
print("expanded:", signed.count(), signed.sum("id"), signed.min("id"), signed.max("id"))
