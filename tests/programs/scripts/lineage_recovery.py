"""Results outlive the workers that made them; what was lost is made again."""

import os
import tempfile

import numpy as np
import ray

ray.init(num_cpus=4)

folder = tempfile.mkdtemp()


def count(name):
    path = os.path.join(folder, name)
    with open(path, "a") as file:
        file.write("x")
    return os.path.getsize(path)


@ray.remote
def make(n):
    count("make")
    return np.full(50_000, n), os.getpid()


@ray.remote
def die_once(value):
    if count("die") == 1:
        os._exit(1)
    return float(value[0].sum())


@ray.remote(max_retries=0)
def die():
    os._exit(1)


@ray.remote
def kill(pid):
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass


@ray.remote
def chain(value, step):
    if count(f"chain{step}") == 1 and step % 2:
        os._exit(1)
    return value + step


made = make.remote(3)
array, pid = ray.get(made)
print("died and ran again:", ray.get(die_once.remote(made)), count("die") - 1)
try:
    ray.get(kill.remote(pid))
except ray.exceptions.WorkerCrashedError:
    pass  # it was asked to end itself
print("still there:", float(ray.get(made)[0].sum()), "made once:", count("make") == 2)

ref = ray.put(0)
for step in range(5):
    ref = chain.remote(ref, step)
print("chain:", ray.get(ref), [count(f"chain{s}") - 1 for s in range(5)])
try:
    ray.get(die.remote())
except ray.exceptions.WorkerCrashedError as error:
    print(type(error).__name__)


@ray.remote(max_restarts=1, max_task_retries=1)
class Phoenix:
    def __init__(self):
        self.born = count("born")

    def die_once(self):
        if count("phoenix") == 1:
            os._exit(1)
        return self.born, ray.get_runtime_context().was_current_actor_reconstructed


print("phoenix:", ray.get(Phoenix.remote().die_once.remote()))
