"""Words of a folder of text files: reading, cleaning, tokenizing, counting and ranking."""

import pathlib
import re
import tempfile

import ray
from ray.data.aggregate import Count

LETTERS = {
    "mon.txt": "The harbour was quiet.\nBoats slept; gulls did not.\n",
    "tue.txt": "A quiet harbour is a rare harbour,\n\nsaid the pilot.\nThe gulls agreed.\n",
    "wed.txt": "Boats! Boats everywhere, and the pilot asleep.\n",
}
STOP_WORDS = {"a", "the", "is", "was", "and", "did", "not", "said"}

ray.init(num_cpus=4)
folder = pathlib.Path(tempfile.mkdtemp())
for name, text in LETTERS.items():
    (folder / name).write_text(text)


def tokenize(row):
    day = pathlib.Path(row["path"]).stem
    return [{"day": day, "word": word} for word in re.findall(r"[a-z]+", row["text"].lower())]


lines = ray.data.read_text(str(folder), include_paths=True)
print("lines:", lines.count())
with_empty = ray.data.read_text(str(folder), drop_empty_lines=False)
print("with the empty ones:", with_empty.count())

tokens = lines.flat_map(tokenize)
words = tokens.filter(lambda row: row["word"] not in STOP_WORDS)
counts = words.groupby("word").count().take_all()
for row in sorted(counts, key=lambda row: (-row["count()"], row["word"]))[:5]:
    print(f"  {row['word']:10} {row['count()']}")

by_day = words.groupby("day").aggregate(Count(alias_name="words"))
print(sorted(by_day.take_all(), key=lambda row: row["day"]))
print("vocabulary:", sorted(words.unique("word")))


def lengths(batch):
    return {"word": batch["word"], "length": [len(word) for word in batch["word"]]}


longest = words.map_batches(lengths, batch_size=4).sort(["length", "word"], descending=[True, False])
print("longest:", [row["word"] for row in longest.take(3)])
print("mean length: %.3f" % words.map_batches(lengths).mean("length"))
