"""What a caller sees of errors: causes, classes, chains, system exits, unpicklable ones, in tasks, actors, generators."""

import ray
from ray.exceptions import RayActorError, RayTaskError, WorkerCrashedError


class Custom(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self):
        return Custom, (self.code,)


@ray.remote(max_retries=0)
def fail(kind):
    if kind == "custom":
        raise Custom(7)
    if kind == "chain":
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("outer") from error
    if kind == "exit":
        raise SystemExit(3)
    if kind == "group":
        raise ExceptionGroup("several", [ValueError("a"), TypeError("b")])
    if kind == "local":

        class Local(Exception):
            pass

        raise Local("only here")
    if kind == "stop":
        raise StopIteration("value")
    return kind


@ray.remote
def outer(kind):
    return ray.get(fail.remote(kind))


@ray.remote
class Fragile:
    def __init__(self, broken=False):
        if broken:
            raise Custom(1)

    def fail(self):
        raise Custom(2)

    def stream(self):
        yield 1
        raise Custom(3)


def show(label, ref):
    try:
        print(label, "gave", ray.get(ref))
    except Exception as error:
        classes = [
            c.__name__ for c in type(error).__mro__ if c in (RayTaskError, RayActorError, WorkerCrashedError)
        ]
        cause = getattr(error, "cause", None)
        print(label, classes, isinstance(error, Custom), getattr(error, "code", None), type(cause).__name__)


ray.init(num_cpus=3)
for kind in ("custom", "chain", "exit", "group", "local", "stop", "fine"):
    show(kind, fail.remote(kind))
show("nested", outer.remote("custom"))
fragile = Fragile.remote()
show("method", fragile.fail.remote())
show("broken", Fragile.remote(broken=True).fail.remote())
stream = fragile.stream.options(num_returns="streaming").remote()
show("first", next(stream))
show("second", next(stream))
print(list(stream))
