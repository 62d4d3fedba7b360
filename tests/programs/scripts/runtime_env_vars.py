"""runtime_env with env_vars: of the job, of tasks, of actors, inherited and overridden."""

import os

import ray

ray.init(num_cpus=4, runtime_env={"env_vars": {"STAGE": "test", "LEVEL": "job"}})


def read(*names):
    return [os.environ.get(name) for name in names]


@ray.remote
def show():
    return read("STAGE", "LEVEL", "EXTRA")


@ray.remote(runtime_env={"env_vars": {"LEVEL": "task", "EXTRA": "e"}})
def with_own():
    return read("STAGE", "LEVEL", "EXTRA")


@ray.remote(runtime_env={"env_vars": {"EXTRA": "parent"}})
def parent():
    return read("STAGE", "LEVEL", "EXTRA"), ray.get(show.remote())


@ray.remote
class Reader:
    def __init__(self):
        self.at_start = read("STAGE", "LEVEL", "EXTRA")

    def show(self):
        return self.at_start, read("STAGE", "LEVEL", "EXTRA")

    def change(self):
        os.environ["EXTRA"] = "changed"


print("job:", ray.get(show.remote()))
print("task:", ray.get(with_own.remote()))
print("not left behind:", ray.get(show.remote()))
print("inherited:", ray.get(parent.remote()))
plain = Reader.remote()
special = Reader.options(runtime_env={"env_vars": {"STAGE": "prod"}}).remote()
print("actors:", ray.get(plain.show.remote()), ray.get(special.show.remote()))
ray.get(plain.change.remote())
print("its own:", ray.get(plain.show.remote())[1], ray.get(show.remote()))
print("options:", ray.get(show.options(runtime_env={"env_vars": {"EXTRA": "1"}}).remote()))
print("driver:", read("STAGE", "LEVEL"))
print(ray.get_runtime_context().runtime_env["env_vars"] == {"STAGE": "test", "LEVEL": "job"})
try:
    show.options(runtime_env={"env_vars": {"N": 1}}).remote()
except TypeError:
    print("TypeError")
