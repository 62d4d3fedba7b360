"""What lives how long: puts, borrowed references, results of dead actors, freed objects, owners that go."""

import gc

import numpy as np
import ray


@ray.remote
class Holder:
    def keep(self, box):
        self.box = box

    def read(self):
        return float(ray.get(self.box[0]).sum())

    def make(self):
        return [ray.put(np.ones(5))]

    def large(self):
        return np.full(200_000, 2.0)


@ray.remote
def pass_on(box, holder):
    ray.get(holder.keep.remote(box))
    return ray.get(box[0]).shape


ray.init(num_cpus=3)
ref = ray.put(np.arange(300_000.0))
holder = Holder.remote()
print(ray.get(pass_on.remote([ref], holder)))
del ref
gc.collect()
print(ray.get(holder.read.remote()))
mine = ray.get(holder.make.remote())[0]
big = holder.large.remote()
ray.wait([big])
print(ray.get(mine).sum(), ray.get(big).sum())
small = holder.read.remote()
print(ray.get(small))
ray.kill(holder)
try:
    ray.get(holder.read.remote())
except ray.exceptions.RayActorError as error:
    print(type(error).__name__)
array = ray.get(ray.put(np.zeros(200_000)))
try:
    array[0] = 1
except ValueError as error:
    print(error)
copy = array.copy()
copy[0] = 1
print(copy[0], array[0])
