"""A data frame in a grid of remote partitions: lazy calls are queued and applied in one task; axes are reduced."""

import numpy as np
import ray


@ray.remote
def apply_all(block, calls):
    for function, args in calls:
        block = function(block, *args)
    return block, block.shape


@ray.remote(num_returns=2)
def split(block, at):
    return block[:at], block[at:]


@ray.remote
def reduce_axis(function, *blocks):
    return function(np.concatenate(blocks))


class Partition:
    def __init__(self, ref, calls=()):
        self.ref, self.calls = ref, list(calls)

    def add(self, function, *args):
        return Partition(self.ref, [*self.calls, (function, args)])

    def drain(self):
        if self.calls:
            self.ref, self.shape = apply_all.options(num_returns=2).remote(self.ref, self.calls)
            self.calls = []
        return self.ref


class Frame:
    def __init__(self, grid):
        self.grid = grid

    @classmethod
    def of(cls, array, rows, columns):
        return cls(
            [
                [Partition(ray.put(b)) for b in np.array_split(stripe, columns, axis=1)]
                for stripe in np.array_split(array, rows)
            ]
        )

    def map(self, function, *args):
        return Frame([[p.add(function, *args) for p in row] for row in self.grid])

    def column_sums(self):
        columns = zip(*self.grid, strict=True)
        refs = [
            reduce_axis.remote(lambda x: x.sum(axis=0), *(p.drain() for p in column)) for column in columns
        ]
        return np.concatenate(ray.get(refs))

    def to_numpy(self):
        return np.block([[ray.get(p.drain()) for p in row] for row in self.grid])


ray.init(num_cpus=3)
data = np.arange(48).reshape(8, 6)
frame = Frame.of(data, 3, 2)
doubled = frame.map(np.multiply, 2).map(np.add, 1)
print(doubled.to_numpy().tolist() == (data * 2 + 1).tolist())
print(doubled.column_sums().tolist())
print(frame.column_sums().tolist())
print([[ray.get(p.shape) for p in row] for row in doubled.grid])
top, bottom = split.remote(ray.put(data), 3)
print(ray.get(top).shape, ray.get(bottom).shape)
try:
    frame.map(np.reshape, (-1, 7)).to_numpy()
except ValueError as error:
    print(type(error).__name__, "cannot reshape" in str(error))
