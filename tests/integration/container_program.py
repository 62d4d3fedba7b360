"""A driver that runs workers in containers, for test_containers. Arguments: the image, a working directory, and "root"
or "user". Prints what it found as JSON in its last line."""

import json
import os
import signal
import sys
from typing import Any

import runtime as ray
from runtime import exceptions

IMAGE, FOLDER, WHO = sys.argv[1:]
INSIDE = {"image_uri": IMAGE, "env_vars": {"GIVEN": "${container} ${GIVEN_BY_IMAGE}", "OMP_NUM_THREADS": "3"}}


@ray.remote
def where(data: bytes = b"") -> dict[str, Any]:
    return {
        "driver's program exists": os.path.exists(__file__),
        "perl exists": os.path.exists("/usr/bin/perl"),
        "variables": [os.environ["GIVEN"], os.environ["OMP_NUM_THREADS"]],
        "user": os.getuid(),
        "file": open("file").read(),
        "length": len(data),
        "zygote": os.getppid(),
    }


@ray.remote
def make(size: int) -> bytes:
    return b"x" * size


@ray.remote
class Actor:
    def child(self) -> dict[str, Any]:
        print("printed in a container")
        return dict(ray.get(where.remote()))

    def exit(self) -> None:
        os._exit(3)


@ray.remote(max_retries=0)
def eat(megabytes: int) -> int:
    return len([b"x" * (1 << 20) for _ in range(megabytes)])


def failure(ref: Any) -> str:
    try:
        ray.get(ref)
    except exceptions.RayError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def main() -> None:
    ray.init(num_cpus=2, object_store_memory=200 << 20, runtime_env={"working_dir": FOLDER})
    found: dict[str, Any] = {}
    inside = where.options(runtime_env=INSIDE)
    found["task"] = ray.get(inside.remote(ray.put(b"x" * 5_000_000)))
    found["result"] = len(ray.get(make.options(runtime_env=INSIDE).remote(3_000_000)))
    actor = Actor.options(runtime_env=INSIDE).remote()
    found["child"] = ray.get(actor.child.remote())
    found["exit"] = failure(actor.exit.remote())
    found["outside"] = ray.get(eat.remote(1))
    os.kill(found["task"]["zygote"], signal.SIGKILL)
    found["again"] = ray.get(inside.remote())
    found["no image"] = failure(where.options(runtime_env={"image_uri": "localhost/none:1"}).remote())
    if WHO == "root":
        for name in ("other", "old"):
            found[name] = failure(eat.options(runtime_env={"image_uri": f"localhost/{name}"}).remote(1))
        limited = {"container": {"image": IMAGE, "run_options": ["--memory=200m"]}}
        found["memory"] = failure(eat.options(runtime_env=limited).remote(1000))
    print(json.dumps(found), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
