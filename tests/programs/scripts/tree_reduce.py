"""Reduction as a tree of tasks: partial results are combined while others are still computed."""

import ray


@ray.remote
def leaf(i):
    return {"sum": i, "least": i, "most": i, "depth": 0}


@ray.remote
def combine(*parts):
    return {
        "sum": sum(p["sum"] for p in parts),
        "least": min(p["least"] for p in parts),
        "most": max(p["most"] for p in parts),
        "depth": 1 + max(p["depth"] for p in parts),
    }


def reduce_tree(refs, arity):
    while len(refs) > 1:
        refs = [combine.remote(*refs[i : i + arity]) for i in range(0, len(refs), arity)]
    return refs[0]


ray.init(num_cpus=3)
for count, arity in ((1, 2), (16, 2), (27, 3), (100, 8)):
    print(count, arity, ray.get(reduce_tree([leaf.remote(i) for i in range(count)], arity)))

pending = [leaf.remote(i) for i in range(20)]
while len(pending) > 1:
    done, pending = ray.wait(pending, num_returns=2)
    pending.append(combine.remote(*done))
total = ray.get(pending[0])
print(total["sum"], total["least"], total["most"])
