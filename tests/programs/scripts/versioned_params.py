"""References as fields of objects, dataclasses and dicts: only top-level arguments become values."""

import dataclasses

import ray


@dataclasses.dataclass(frozen=True)
class Version:
    number: int
    params: ray.ObjectRef


@ray.remote
def kinds(top, inside, record):
    return [type(top).__name__, type(inside["ref"]).__name__, type(record.params).__name__]


@ray.remote
class Store:
    def __init__(self):
        self.versions = []

    def publish(self, holder):
        self.versions.append(Version(len(self.versions), holder[0]))
        return len(self.versions) - 1

    def get(self, number):
        return self.versions[number]


@ray.remote
def train(version):
    params = ray.get(version.params)
    return [ray.put([p + 1 for p in params])]


ray.init(num_cpus=3)
store = Store.remote()
ref = ray.put([0, 10])
print(ray.get(kinds.remote(ref, {"ref": ref}, Version(0, ref))))
ray.get(store.publish.remote([ref]))
del ref
for _ in range(3):
    latest = ray.get(store.get.remote(_))
    ray.get(store.publish.remote(ray.get(train.remote(latest))))
print([ray.get(ray.get(store.get.remote(i)).params) for i in range(4)])
