"""Flaky tasks: retries after crashes, after listed exceptions, and by hand."""

import os
import tempfile

import ray
from ray.exceptions import RayTaskError, WorkerCrashedError

ray.init(num_cpus=4)

folder = tempfile.mkdtemp()


class Flaky(Exception):
    pass


class VeryFlaky(Flaky):
    pass


def attempt(name):
    """The number of this attempt, counted in a file."""
    with open(os.path.join(folder, name), "a+") as file:
        file.write("x")
        return file.tell()


@ray.remote(max_retries=4)
def crashes(name, times):
    n = attempt(name)
    if n <= times:
        os._exit(1)
    return n


@ray.remote(max_retries=4, retry_exceptions=[Flaky])
def raises(name, times, error):
    n = attempt(name)
    if n <= times:
        raise error(f"attempt {n}")
    return n


@ray.remote
def plain(name):
    attempt(name)
    raise Flaky("not retried")


print("crashed twice:", ray.get(crashes.remote("a", 2)))
print("raised twice:", ray.get(raises.remote("b", 2, Flaky)))
print("a subclass counts:", ray.get(raises.remote("c", 1, VeryFlaky)))

try:
    ray.get(crashes.options(max_retries=1).remote("d", 9))
except WorkerCrashedError:
    print("crashed too often, attempts:", attempt("d") - 1)

try:
    ray.get(raises.remote("e", 1, KeyError))
except KeyError as error:
    print("not listed:", isinstance(error, RayTaskError), attempt("e") - 1)

try:
    ray.get(raises.options(max_retries=2).remote("f", 9, Flaky))
except Flaky as error:
    print("raised too often:", attempt("f") - 1, "attempt 3" in str(error))

try:
    ray.get(plain.remote("g"))
except Flaky:
    print("by default once:", attempt("g") - 1)

try:
    ray.get(plain.options(retry_exceptions=True, max_retries=2).remote("h"))
except Flaky:
    print("with options:", attempt("h") - 1)


def with_backoff(function, *args, tries=5):
    for n in range(tries):
        try:
            return n, ray.get(function.remote(*args))
        except Flaky as error:
            last = error
    raise last


@ray.remote
def third_time(name):
    if attempt(name) < 3:
        raise Flaky("no")
    return "lucky"


print("by hand:", with_backoff(third_time, "i"))
