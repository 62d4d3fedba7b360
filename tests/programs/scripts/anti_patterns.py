"""Things that the documentation warns of, which work all the same."""

import numpy as np
import ray

ray.init(num_cpus=4)


# Too fine-grained tasks.
@ray.remote
def tiny(x):
    return x + 1


print(sum(ray.get([tiny.remote(i) for i in range(500)])))


@ray.remote
def batched(xs):
    return [x + 1 for x in xs]


print(sum(sum(part) for part in ray.get([batched.remote(range(i, i + 100)) for i in range(0, 500, 100)])))

# The same large argument by value, again and again; once by reference.
big = np.ones(200_000)


@ray.remote
def total(array, i):
    return float(array.sum()) + i


print(ray.get([total.remote(big, i) for i in range(4)]))
big_ref = ray.put(big)
print(ray.get([total.remote(big_ref, i) for i in range(4)]))


# A large object in a closure.
@ray.remote
def by_closure(i):
    return float(big[:10].sum()) + i


print(ray.get([by_closure.remote(i) for i in range(2)]))


# A reference in a closure is never resolved by itself.
@ray.remote
def ref_in_closure():
    return isinstance(big_ref, ray.ObjectRef), float(ray.get(big_ref).sum())


print(ray.get(ref_in_closure.remote()))

# ray.get in a loop instead of at the end.
print([ray.get(tiny.remote(i)) for i in range(5)])

# Global variables are not shared.
state = {"count": 0}


@ray.remote
def bump():
    state["count"] += 1
    return state["count"] > 0


@ray.remote
class Shared:
    def __init__(self):
        self.state = state
        self.state["count"] += 100

    def get(self):
        return self.state["count"]


print(all(ray.get([bump.remote() for _ in range(3)])), state)
print(ray.get(Shared.remote().get.remote()), state)

# The same function made remote in a loop.
print([ray.get(ray.remote(lambda x, k=k: x * k).remote(10)) for k in range(4)])


# Returning ray.put references.
@ray.remote
def returns_put():
    return ray.put("indirect")


print(ray.get(ray.get(returns_put.remote())))

# Processing results in submission order rather than completion order.
refs = [tiny.remote(i) for i in range(10)]
print([ray.get(r) for r in refs] == sorted(ray.get(refs)))


# Forking inside tasks is left to the tasks; nested ray.init calls are refused or ignored.
@ray.remote
def init_inside():
    try:
        ray.init()
        return "accepted"
    except RuntimeError:
        return "RuntimeError"


print(ray.get(init_inside.remote()))
