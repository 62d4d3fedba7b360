"""A supervisor that keeps workers alive: restarts by the engine, and new ones by hand."""

import os

import ray
from ray.exceptions import RayActorError

ray.init(num_cpus=4)


@ray.remote(max_restarts=2, max_task_retries=-1)
class Restarting:
    def __init__(self, path):
        self.path = path
        with open(path, "a") as file:
            file.write("x")

    def starts(self):
        return os.path.getsize(self.path)

    def crash_once(self, marker):
        if not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(1)
        return "survived"


@ray.remote
class Fragile:
    def __init__(self, name):
        self.name = name

    def work(self, x):
        if x == "die":
            os._exit(1)
        return f"{self.name} did {x}"


@ray.remote
class Supervisor:
    def __init__(self, names):
        self.workers = {name: Fragile.remote(name) for name in names}
        self.restarts = []

    def run(self, name, job):
        for attempt in range(3):
            try:
                return ray.get(self.workers[name].work.remote(job if attempt == 0 else f"{job} again"))
            except RayActorError as error:
                self.restarts.append((name, type(error).__name__))
                self.workers[name] = Fragile.remote(name)
        return "gave up"

    def history(self):
        return self.restarts


import tempfile

folder = tempfile.mkdtemp()
actor = Restarting.remote(os.path.join(folder, "starts"))
print("starts:", ray.get(actor.starts.remote()))
print(ray.get(actor.crash_once.remote(os.path.join(folder, "marker"))))
print("starts:", ray.get(actor.starts.remote()))
print(ray.get(actor.crash_once.remote(os.path.join(folder, "marker2"))))
print("starts:", ray.get(actor.starts.remote()))
try:
    ray.get(actor.crash_once.remote(os.path.join(folder, "marker3")))
except RayActorError as error:
    print("no restarts left:", type(error).__name__)

supervisor = Supervisor.remote(["ann", "bob"])
print(ray.get(supervisor.run.remote("ann", "dishes")))
print(ray.get(supervisor.run.remote("bob", "die")))
print(ray.get(supervisor.run.remote("bob", "laundry")))
print(ray.get(supervisor.history.remote()))
