"""A scheduler for graphs of dask's form: a dict of keys to tuples (function, *arguments)."""

from operator import add, mul

import ray


def is_task(value):
    return isinstance(value, tuple) and bool(value) and callable(value[0])


@ray.remote
def run(function, nested, *values):
    values = iter(values)

    def fill(item):
        if item is PLACE or item == PLACE:
            return next(values)
        if isinstance(item, list):
            return [fill(x) for x in item]
        if is_task(item):
            return item[0](*(fill(x) for x in item[1:]))
        return item

    return function(*(fill(x) for x in nested))


PLACE = "<a value of another key>"


def schedule(graph, wanted):
    refs = {}

    def ref_of(key):
        if key not in refs:
            task = graph[key]
            if not is_task(task):
                refs[key] = ray.put(task)
            else:
                found = []
                nested = [replace(x, found) for x in task[1:]]
                refs[key] = run.options(name=f"dask:{key}").remote(task[0], nested, *found)
        return refs[key]

    def replace(item, found):
        if isinstance(item, str) and item in graph:
            found.append(ref_of(item))
            return PLACE
        if isinstance(item, list):
            return [replace(x, found) for x in item]
        if is_task(item):
            return (item[0], *(replace(x, found) for x in item[1:]))
        return item

    return ray.get([ref_of(key) for key in wanted])


def fail(value):
    raise ZeroDivisionError(f"cannot use {value}")


ray.init(num_cpus=3)
graph = {
    "a": 1,
    "b": (add, "a", 10),
    "c": (mul, "b", (add, "a", "a")),
    "d": (sum, ["a", "b", "c"]),
    "e": (sorted, ["c", "b", "a"]),
    "f": (fail, "d"),
    "g": (add, "f", 1),
}
print(schedule(graph, ["d", "e", "c"]))
try:
    schedule(graph, ["g"])
except ZeroDivisionError as error:
    print("failed:", type(error.cause).__name__, error.cause)
chain = {"x0": 0, **{f"x{i + 1}": (add, f"x{i}", i) for i in range(60)}}
print(schedule(chain, ["x60"]))
