"""Actors that make actors: a manager with departments, and what dies with whom."""

import time

import ray
from ray.exceptions import RayActorError

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self, name):
        self.name = name

    def work(self, x):
        return f"{self.name}({x})"


@ray.remote(num_cpus=0)
class Department:
    def __init__(self, name, size):
        self.name = name
        self.workers = [Worker.remote(f"{name}{i}") for i in range(size)]

    def work(self, items):
        refs = [self.workers[i % len(self.workers)].work.remote(item) for i, item in enumerate(items)]
        return ray.get(refs)

    def hire(self, name):
        self.workers.append(Worker.remote(name))
        return self.workers[-1]


@ray.remote(num_cpus=0)
class Manager:
    def __init__(self, sizes):
        self.departments = {name: Department.remote(name, size) for name, size in sizes.items()}

    def work(self, **items):
        refs = {name: self.departments[name].work.remote(things) for name, things in items.items()}
        return {name: ray.get(ref) for name, ref in refs.items()}

    def department(self, name):
        return self.departments[name]

    def fire(self, name):
        ray.kill(self.departments.pop(name))


def gone(handle, *args):
    for _ in range(3000):
        try:
            ray.get(handle.work.remote(*args))
        except RayActorError as error:
            return type(error).__name__
        time.sleep(0.02)
    return "lives"


manager = Manager.remote({"a": 2, "b": 1})
print(ray.get(manager.work.remote(a=[1, 2, 3], b=[4])))
department = ray.get(manager.department.remote("a"))
hired = ray.get(department.hire.remote("new"))
print(ray.get(department.work.remote(range(3))), ray.get(hired.work.remote("direct")))

# Killing the department ends the actors that it owns.
ray.get(manager.fire.remote("a"))
print("department:", gone(department, []))
print("worker:", gone(hired, 0))
print(ray.get(manager.work.remote(b=["still here"])))
