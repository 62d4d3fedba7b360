"""References as keys of dicts and members of sets; comparing, hashing and printing them."""

import ray

ray.init(num_cpus=4)


@ray.remote
def identity(x):
    return x


@ray.remote
def unwrap(box):
    return [isinstance(r, ray.ObjectRef) for r in box], ray.get(box)


@ray.remote
def same(box, other):
    return box[0] == other[0], box[0] in {other[0]}, hash(box[0]) == hash(other[0])


refs = [identity.remote(i) for i in range(6)]
labels = {ref: f"task {i}" for i, ref in enumerate(refs)}
pending = set(refs)
while pending:
    done, _ = ray.wait(list(pending), num_returns=1)
    pending -= set(done)
print("labels:", [labels[ref] for ref in refs])
print("values:", [ray.get(ref) for ref in labels])

a, b = refs[0], refs[1]
print(a == a, a == b, a != b, a == "text", a in refs, len({a, b, a}))
print(
    len(a.hex()), len(a.binary()), a.hex() == a.binary().hex(), str(a) == repr(a) == f"ObjectRef({a.hex()})"
)
print(a.is_nil(), ray.ObjectRef.nil().is_nil(), type(a).__name__)
print(
    "a task's references:", a.task_id() == a.task_id(), a.task_id() == b.task_id(), a.job_id() == b.job_id()
)

ref = ray.put("x")
print(ray.get(unwrap.remote([ref, a])))
print(ray.get(same.remote([ref], [ref])), ray.get(same.remote([ref], [a])))
print(ray.get(identity.remote([ref]))[0] == ref)

inner = ray.put({"deep": [ref, (a, b)]})
outer = ray.get(inner)
print(outer["deep"][0] == ref, outer["deep"][1] == (a, b))
try:
    len(ref)
except TypeError:
    print("TypeError")
