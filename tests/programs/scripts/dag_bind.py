"""Lazy graphs with bind: functions, classes, inputs, several outputs."""

import ray
from ray.dag import InputNode, MultiOutputNode

ray.init(num_cpus=4)


@ray.remote
def add(a, b):
    return a + b


@ray.remote
def double(x):
    return 2 * x


@ray.remote
def combine(*values, scale=1):
    return sum(values) * scale


@ray.remote
class Accumulator:
    def __init__(self, start):
        self.total = start

    def add(self, value):
        self.total += value
        return self.total

    def get(self):
        return self.total


a = double.bind(5)
b = add.bind(a, 1)
print("constant:", ray.get(b.execute()))

with InputNode() as x:
    graph = combine.bind(double.bind(x), add.bind(x, 10), scale=3)
print("input:", [ray.get(graph.execute(n)) for n in (1, 2)])

with InputNode() as inputs:
    keyed = add.bind(inputs["left"], double.bind(inputs["right"]))
print("by key:", ray.get(keyed.execute({"left": 1, "right": 20})))

with InputNode() as inputs:
    positional = add.bind(inputs[0], inputs.extra)
print("by position:", ray.get(positional.execute(7, extra=8)))

actor = Accumulator.bind(100)
first = actor.add.bind(1)
second = actor.add.bind(first)
print("class:", ray.get(second.execute()))

handle = Accumulator.remote(0)
with InputNode() as x:
    outputs = MultiOutputNode([handle.add.bind(x), double.bind(x)])
for n in (1, 2):
    print("several:", ray.get(outputs.execute(n)))
print("handle:", ray.get(handle.get.remote()))

shared = double.bind(4)
print("shared:", ray.get(combine.bind(shared, shared, shared).execute()))
print(type(graph).__name__, type(actor).__name__, type(first).__name__, type(shared).__name__)
