"""A tree of tasks that pass references inside lists, dicts, tuples and objects."""

import dataclasses
from typing import Any

import ray

ray.init(num_cpus=4)


@dataclasses.dataclass
class Branch:
    name: str
    value: Any
    children: list


@ray.remote
def leaf(i):
    return i * i


@ray.remote
def grow(name, depth):
    if depth == 0:
        return Branch(name, leaf.remote(len(name)), [])
    children = [grow.remote(f"{name}{side}", depth - 1) for side in "LR"]
    return Branch(name, leaf.remote(depth), children)


@ray.remote
def add_up(branch):
    assert isinstance(branch.value, ray.ObjectRef)
    below = ray.get([add_up.remote(child) for child in branch.children])
    return ray.get(branch.value) + sum(below)


def names(branch):
    found = [branch.name]
    for child in ray.get(branch.children):
        found += names(child)
    return found


@ray.remote
def look_inside(box):
    kinds = {key: type(value).__name__ for key, value in box.items()}
    value = ray.get(box["ref"])
    deeper = ray.get(ray.get(box["list"][0])[0])
    return kinds, value, deeper, [ray.get(ref) for ref in box["tuple"]]


tree = grow.remote("t", 3)
print("sum:", ray.get(add_up.remote(tree)))
print("names:", sorted(names(ray.get(tree))))

inner = ray.put("deep")
outer = ray.put([inner])
del inner
box = {"ref": leaf.remote(9), "list": [outer], "tuple": (leaf.remote(2), leaf.remote(3)), "plain": 1}
del outer
print(ray.get(look_inside.remote(box)))


# A reference as a direct argument is resolved, one inside a list is not.
@ray.remote
def kinds(a, b, c):
    return type(a).__name__, type(b[0]).__name__, type(c["x"]).__name__


ref = ray.put(1.5)
print(ray.get(kinds.remote(ref, [ref], {"x": ref})))
print(ray.get(kinds.remote(a=ref, b=[ref], c={"x": ref})))
