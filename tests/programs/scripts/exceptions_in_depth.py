"""Errors: the user's own class comes back, with causes, through chains and actors."""

import ray
from ray.exceptions import RayError, RayTaskError

ray.init(num_cpus=4)


class AppError(Exception):
    def __init__(self, code, message="none"):
        super().__init__(code, message)
        self.code = code
        self.message = message


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("holds a lock")
        import threading

        self.lock = threading.Lock()


@ray.remote
def fail(code):
    raise AppError(code, message=f"code {code}")


@ray.remote
def chained():
    try:
        {}["missing"]
    except KeyError as error:
        raise AppError(2) from error


@ray.remote
def use(value):
    return value


@ray.remote
def nested(code):
    return ray.get(fail.remote(code))


@ray.remote
def caught(code):
    try:
        ray.get(fail.remote(code))
    except AppError as error:
        return f"caught {error.code}"


@ray.remote
def unpicklable():
    raise Unpicklable()


@ray.remote
def group():
    raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])


@ray.remote
def exits():
    raise SystemExit(3)


@ray.remote
class Service:
    def __init__(self, fine=True):
        if not fine:
            raise AppError(7, "constructor")

    def call(self, kind):
        raise kind("from an actor")

    def fine(self):
        return "fine"


def attempt(label, function):
    try:
        print(label, "->", function())
    except Exception as error:
        cause = getattr(error, "cause", None)
        print(
            label,
            "->",
            type(error).__name__,
            "| AppError:",
            isinstance(error, AppError),
            "| RayTaskError:",
            isinstance(error, RayTaskError),
            "| RayError:",
            isinstance(error, RayError),
            "| cause:",
            type(cause).__name__,
        )
        return error


error = attempt("plain", lambda: ray.get(fail.remote(1)))
print("  code:", error.code, error.message, error.args, "traceback:", "raise AppError" in str(error))
error = attempt("chained", lambda: ray.get(chained.remote()))
print("  shows both:", "KeyError" in str(error), "AppError" in str(error))
error = attempt("through an argument", lambda: ray.get(use.remote(fail.remote(3))))
print("  code:", error.cause.code if isinstance(error.cause, AppError) else error.cause)
error = attempt("through a nested get", lambda: ray.get(nested.remote(4)))
print("  code:", error.code)
attempt("caught inside", lambda: ray.get(caught.remote(5)))
error = attempt("unpicklable", lambda: ray.get(unpicklable.remote()))
print("  keeps its words:", "holds a lock" in str(error))
error = attempt("group", lambda: ray.get(group.remote()))
print("  members:", sorted(type(e).__name__ for e in error.exceptions))

service = Service.remote()
for kind in (ValueError, ZeroDivisionError, StopIteration, AppError):
    attempt(f"actor {kind.__name__}", lambda kind=kind: ray.get(service.call.remote(kind)))
attempt("actor lives on", lambda: ray.get(service.fine.remote()))
broken = Service.remote(fine=False)
error = attempt("constructor", lambda: ray.get(broken.fine.remote()))
print("  says why:", "AppError" in str(error))
attempt("several, one bad", lambda: ray.get([use.remote(1), fail.remote(6), use.remote(2)]))
try:
    ray.get(fail.remote(8))
except AppError as e:
    print("except AppError:", e.code)
