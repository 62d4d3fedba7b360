"""Aggregations of one's own: a weighted mean, a histogram, and the longest word of each group."""

from typing import Any, Dict, List

import ray
from ray.data.aggregate import AggregateFn, AggregateFnV2, Max, Sum
from ray.data.block import Block, BlockAccessor

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data
WORDS = "when shall we three meet again in thunder lightning or in rain".split()
dataset = ray.data.from_items(
    [{"group": i % 2, "word": word, "value": i, "weight": 1 + i % 4} for i, word in enumerate(WORDS)],
    override_num_blocks=4,
)


class WeightedMean(AggregateFnV2[Dict[str, float], float]):
    def __init__(self, on: str, weight: str):
        self._weight = weight
        super().__init__(
            name=f"weighted_mean({on})",
            zero_factory=lambda: {"sum": 0.0, "weight": 0.0},
            on=on,
            ignore_nulls=True,
        )

    def aggregate_block(self, block: Block) -> Dict[str, float]:
        rows = list(BlockAccessor.for_block(block).iter_rows(public_row_format=True))
        return {
            "sum": float(sum(row[self.get_target_column()] * row[self._weight] for row in rows)),
            "weight": float(sum(row[self._weight] for row in rows)),
        }

    def combine(self, current: Dict[str, float], new: Dict[str, float]) -> Dict[str, float]:
        return {name: current[name] + new[name] for name in current}

    def finalize(self, accumulator: Dict[str, float]) -> float:
        return accumulator["sum"] / accumulator["weight"]


class Histogram(AggregateFnV2[List[int], List[int]]):
    """How many values are in each of the intervals of one width."""

    def __init__(self, on: str, width: int, bins: int):
        super().__init__(name=f"histogram({on})", zero_factory=lambda: [0] * bins, on=on, ignore_nulls=True)
        self._width = width
        self._bins = bins

    def aggregate_block(self, block: Block) -> List[int]:
        counts = [0] * self._bins
        for value in BlockAccessor.for_block(block).to_numpy(self.get_target_column()):
            counts[min(int(value) // self._width, self._bins - 1)] += 1
        return counts

    def combine(self, current: List[int], new: List[int]) -> List[int]:
        return [a + b for a, b in zip(current, new)]


weighted = dataset.groupby("group").aggregate(WeightedMean("value", "weight"), Sum("weight")).sort("group")
for row in weighted.take_all():
    print({name: round(float(value), 4) for name, value in row.items()})
print("histogram:", list(dataset.aggregate(Histogram("value", 4, 3))["histogram(value)"]))
for row in dataset.groupby("group").aggregate(Histogram("value", 3, 4)).sort("group").take_all():
    print("histogram of", row["group"], list(row["histogram(value)"]))


def longer(current: Any, other: Any) -> Any:
    return max(current, other, key=lambda word: (len(word), word))


longest = AggregateFn(
    init=lambda key: "",
    accumulate_row=lambda current, row: longer(current, row["word"]),
    merge=longer,
    finalize=str.upper,
    name="longest",
)
print(dataset.groupby("group").aggregate(longest, Max("value")).sort("group").take_all())
print(dataset.aggregate(longest))
letters = AggregateFn(
    init=lambda key: 0,
    accumulate_block=lambda current, block: (
        current + sum(len(row["word"]) for row in BlockAccessor.for_block(block).iter_rows(True))
    ),
    merge=lambda a, b: a + b,
    name="letters",
)
print(dataset.aggregate(letters)["letters"], sum(map(len, WORDS)))
