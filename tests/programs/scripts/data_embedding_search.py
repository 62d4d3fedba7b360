"""Semantic search: texts become vectors in batches, and queries find their nearest neighbours."""

import hashlib

import numpy as np
import ray

WIDTH = 32
DOCUMENTS = [
    "bread needs flour water salt and time",
    "sourdough bread ferments for a long time",
    "the train to the coast leaves at noon",
    "night train tickets sell out early",
    "salt water taffy is a sweet of the coast",
    "flour and butter make a crust",
    "early birds sing at noon too",
]

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data


def bucket(word):
    return int(hashlib.md5(word.encode()).hexdigest(), 16) % WIDTH


class Embedder:
    """Hashed bags of words, of length one."""

    def __init__(self, width):
        self.width = width

    def __call__(self, batch):
        vectors = np.zeros((len(batch["text"]), self.width), dtype=np.float32)
        for i, text in enumerate(batch["text"]):
            for word in text.split():
                vectors[i, bucket(word)] += 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return {**batch, "vector": vectors}


documents = ray.data.from_items([{"id": i, "text": text} for i, text in enumerate(DOCUMENTS)])
embedded = documents.map_batches(
    Embedder, fn_constructor_args=(WIDTH,), batch_size=3, concurrency=1
).materialize()
print("rows:", embedded.count(), "columns:", sorted(embedded.columns()))
one = embedded.take(1)[0]["vector"]
print("vector:", one.shape, one.dtype, "norm %.3f" % np.linalg.norm(one))

embed = Embedder(WIDTH)
for query in ("bread flour", "train at noon", "salt"):
    vector = embed({"text": [query]})["vector"][0]

    def score(batch, vector=vector):
        return {"id": batch["id"], "text": batch["text"], "score": (batch["vector"] @ vector).round(4)}

    best = embedded.map_batches(score).sort(["score", "id"], descending=[True, False]).take(2)
    print(query, "->", [(row["id"], round(float(row["score"]), 3)) for row in best])

whole = embedded.sort("id").take_batch(len(DOCUMENTS))["vector"]
similarity = whole @ whole.T
np.fill_diagonal(similarity, -1)
print("nearest of each:", similarity.argmax(axis=1).tolist())


def centroid(group):
    return {
        "even": group["even"][:1],
        "members": [len(group["id"])],
        "centroid": group["vector"].mean(axis=0)[None],
    }


halves = embedded.map_batches(lambda batch: {**batch, "even": batch["id"] % 2 == 0}).groupby("even")
for row in sorted(
    halves.map_groups(centroid, batch_format="numpy").take_all(), key=lambda row: bool(row["even"])
):
    print(bool(row["even"]), int(row["members"]), row["centroid"].shape, "%.4f" % row["centroid"].sum())
