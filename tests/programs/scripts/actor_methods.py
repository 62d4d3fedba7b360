"""What an actor class may have: inheritance, static and class methods, properties, options of methods, exit."""

import abc
import functools

import ray

ray.init(num_cpus=4)


def logged(function):
    @functools.wraps(function)
    def call(self, *args, **kwargs):
        self.calls.append(function.__name__)
        return function(self, *args, **kwargs)

    return call


class Shape(abc.ABC):
    kind = "shape"

    def __init__(self, name, *sizes, unit="m", **extra):
        self.name, self.sizes, self.unit, self.extra = name, sizes, unit, extra
        self.calls = []

    @abc.abstractmethod
    def area(self): ...

    def describe(self):
        return f"{self.name}: {self.area()} {self.unit}2 ({self.kind})"

    @property
    def doubled(self):
        return 2 * self.area()

    def get_doubled(self):
        return self.doubled


@ray.remote(num_cpus=0)
class Rectangle(Shape):
    kind = "rectangle"

    @logged
    def area(self):
        width, height = self.sizes
        return width * height

    @staticmethod
    def unit_names():
        return ["m", "cm"]

    @classmethod
    def get_kind(cls):
        return cls.kind

    @ray.method(num_returns=2)
    def sides(self):
        return self.sizes

    def with_defaults(self, a, b=2, *rest, c, d=4, **more):
        return a, b, rest, c, d, sorted(more.items())

    def get_calls(self):
        return self.calls

    def get_extra(self):
        return self.extra

    def __len__(self):
        return len(self.sizes)

    def __call__(self, x):
        return ("called", x)

    def _private(self):
        return "private"

    def leave(self):
        ray.actor.exit_actor()


r = Rectangle.remote("box", 3, 4, unit="cm", colour="red")
print(ray.get(r.describe.remote()), ray.get(r.get_doubled.remote()), ray.get(r.get_extra.remote()))
print(ray.get(r.unit_names.remote()), ray.get(r.get_kind.remote()), ray.get(r.get_calls.remote()))
width, height = r.sides.remote()
print(ray.get([width, height]), ray.get(r.sides.options(num_returns=1).remote()))
print(ray.get(r.with_defaults.remote(1, c=3)), ray.get(r.with_defaults.remote(1, 5, 6, 7, c=8, e=9)))
print(ray.get(r.__len__.remote()), ray.get(r.__call__.remote(1)), ray.get(r._private.remote()))
print(ray.get(r.__ray_call__.remote(lambda self, n: self.name * n, 2)), ray.get(r.__ray_ready__.remote()))


def refused(label, function):
    try:
        function()
        print(label, "accepted")
    except Exception as error:
        print(label, type(error).__name__)


refused("direct class", lambda: Rectangle("x"))
refused("direct method", lambda: r.area())
refused("unknown method", lambda: r.volume)
refused("too few", lambda: r.with_defaults.remote())
refused("missing keyword", lambda: r.with_defaults.remote(1))
refused("too many", lambda: r.area.remote(1))
refused("constructor", lambda: Rectangle.remote())
refused("option", lambda: Rectangle.options(colour="red"))
refused("option value", lambda: Rectangle.options(max_restarts=-2).remote("x"))
refused("get of handle", lambda: ray.get(r))
refused("kill of text", lambda: ray.kill("x"))

plain = ray.remote(type("Plain", (), {"hello": lambda self: "hello"})).remote()
print(ray.get(plain.hello.remote()))

left = r.leave.remote()
try:
    ray.get(left)
except ray.exceptions.RayActorError as error:
    print("left:", type(error).__name__)
try:
    ray.get(r.describe.remote())
except ray.exceptions.RayActorError as error:
    print("gone:", type(error).__name__)
