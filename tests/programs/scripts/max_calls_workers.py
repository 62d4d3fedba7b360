"""Worker processes: max_calls renews them, tasks are isolated, state of modules stays in the process."""

import os

import ray

ray.init(num_cpus=1)


@ray.remote(max_calls=1)
def once():
    return os.getpid()


@ray.remote
def often():
    return os.getpid()


@ray.remote(max_calls=2)
def twice():
    return os.getpid()


pids = [ray.get(once.remote()) for _ in range(4)]
print("a new process each time:", len(set(pids)) == 4)
pids = [ray.get(often.remote()) for _ in range(6)]
print("one process:", len(set(pids)) == 1, "not this one:", os.getpid() not in pids)
pids = [ray.get(twice.remote()) for _ in range(6)]
print("two calls each:", len(set(pids)) >= 3)
try:
    once.options(max_calls=2)
    print("accepted")
except ValueError:
    print("ValueError")


@ray.remote
def set_environment():
    os.environ["LEFT_BEHIND"] = "1"


@ray.remote
def change_folder():
    os.chdir("/")
    return os.getcwd()


@ray.remote
class Worker:
    def pid(self):
        return os.getpid()

    def parent_is_alive(self):
        return os.getppid() > 0


ray.get(set_environment.remote())
print(ray.get(change_folder.remote()), os.environ.get("LEFT_BEHIND"))
workers = [Worker.options(num_cpus=0).remote() for _ in range(3)]
pids = ray.get([w.pid.remote() for w in workers])
print("each actor its own:", len(set(pids)) == 3)
print(ray.get(workers[0].parent_is_alive.remote()))
