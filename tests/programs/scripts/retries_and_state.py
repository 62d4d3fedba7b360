"""Retries of tasks and of actor calls by exception, counted in files that outlive the processes."""

import os
import tempfile

import ray


def count(path):
    with open(path, "a") as file:
        file.write("x")
    return os.path.getsize(path)


@ray.remote(max_retries=3, retry_exceptions=[ConnectionError])
def flaky(path, fails, kind):
    if count(path) <= fails:
        raise kind("again")
    return os.path.getsize(path)


@ray.remote(max_retries=2)
def crash(path, crashes):
    if count(path) <= crashes:
        os._exit(9)
    return os.path.getsize(path)


@ray.remote(max_restarts=2, max_task_retries=2)
class Phoenix:
    def __init__(self, path):
        self.lives = count(path)

    def life(self):
        return self.lives

    def die(self, path, times):
        if count(path) <= times:
            os._exit(7)
        return self.lives


ray.init(num_cpus=3)
folder = tempfile.mkdtemp()
path = lambda name: os.path.join(folder, name)
print(ray.get(flaky.remote(path("a"), 2, ConnectionError)))
for name, fails, kind in (("b", 9, ConnectionResetError), ("c", 1, ValueError)):
    try:
        ray.get(flaky.remote(path(name), fails, kind))
    except (ConnectionError, ValueError) as error:
        print(type(error.cause).__name__, os.path.getsize(path(name)))
print(ray.get(crash.remote(path("d"), 2)))
try:
    ray.get(crash.remote(path("e"), 3))
except ray.exceptions.WorkerCrashedError as error:
    print(type(error).__name__, os.path.getsize(path("e")))
print(ray.get(crash.options(max_retries=-1).remote(path("f"), 4)))
phoenix = Phoenix.remote(path("lives"))
print(
    ray.get(phoenix.life.remote()), ray.get(phoenix.die.remote(path("g"), 1)), ray.get(phoenix.life.remote())
)
try:
    ray.get(phoenix.die.remote(path("h"), 9))
except ray.exceptions.RayActorError as error:
    print(type(error).__name__)
