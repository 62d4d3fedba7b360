"""Merge sort with nested tasks."""

import heapq
import random

import ray

ray.init(num_cpus=4)


@ray.remote
def merge(left, right):
    return list(heapq.merge(left, right))


@ray.remote
def sort_task(values, threshold):
    if len(values) <= threshold:
        return sorted(values)
    middle = len(values) // 2
    left = sort_task.remote(values[:middle], threshold)
    right = sort_task.remote(values[middle:], threshold)
    return ray.get(merge.remote(left, right))


@ray.remote
def sort_without_waiting(values, threshold):
    """Returns a reference to the result instead of waiting for it."""
    if len(values) <= threshold:
        return ray.put(sorted(values))
    middle = len(values) // 2
    left = sort_without_waiting.remote(values[:middle], threshold)
    right = sort_without_waiting.remote(values[middle:], threshold)
    return merge_of_refs.remote(left, right)


@ray.remote
def merge_of_refs(left, right):
    while isinstance(left, ray.ObjectRef):
        left = ray.get(left)
    while isinstance(right, ray.ObjectRef):
        right = ray.get(right)
    return list(heapq.merge(left, right))


values = [random.Random(5).randrange(10_000) for _ in range(500)]
values = [random.Random(i).randrange(10_000) for i in range(500)]
print(ray.get(sort_task.remote(values, 40)) == sorted(values))
result = sort_without_waiting.remote(values, 100)
while isinstance(result, ray.ObjectRef):
    result = ray.get(result)
print(result == sorted(values))
print(result[:8], result[-3:])
