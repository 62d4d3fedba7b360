"""Values of many types through arguments, results and put: by value, by reference, with their own pickling."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import ray

ray.init(num_cpus=4)

T = TypeVar("T")


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@dataclasses.dataclass(order=True)
class Item:
    name: str
    price: float = 0.0
    tags: list = dataclasses.field(default_factory=list)

    def total(self, n):
        return self.price * n


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int


class Pair(NamedTuple):
    left: int
    right: str


class Stack(Generic[T]):
    def __init__(self, items: list[T]):
        self.items = items

    def __eq__(self, other):
        return type(other) is type(self) and other.items == self.items


class Connection:
    """Holds something that cannot be pickled; makes it anew."""

    def __init__(self, name):
        self.name = name
        self.generator = (i for i in range(3))

    def __getstate__(self):
        return {"name": self.name}

    def __setstate__(self, state):
        self.__init__(state["name"])

    def __eq__(self, other):
        return self.name == other.name


class Reduced:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return Reduced, (self.value + 1,)


class Base:
    def greet(self):
        return "base"


class Derived(Base):
    def greet(self):
        return super().greet() + " derived"


@ray.remote
def echo(value):
    return value


@ray.remote
def describe(value):
    return type(value).__name__, value


def closure(n):
    def inner(x):
        return x + n

    return inner


values = [
    None,
    True,
    10**40,
    1.5,
    2 + 3j,
    "text \u00e9\U0001f600",
    b"bytes",
    (1, (2, [3])),
    {1, 2},
    frozenset("a"),
    range(3, 9, 2),
    slice(1, None, 2),
    ...,
    {"k": {"n": [1]}},
    collections.OrderedDict(a=1),
    collections.Counter("aab"),
    collections.deque([1, 2], maxlen=5),
    collections.defaultdict(list, {"x": [1]}),
    datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc),
    datetime.timedelta(days=1),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=5),
    pathlib.PurePosixPath("/a/b"),
    types.SimpleNamespace(a=1),
    Colour.RED,
    Colour.BLUE,
    Flags.A | Flags.B,
    Item("nut", 1.5, ["x"]),
    Point(1, 2),
    Pair(1, "r"),
    Stack([1, 2]),
    Connection("db"),
    re.compile(r"a+", re.I),
    np.float32(1.5),
    np.datetime64("2024-01-01"),
]
for value in values:
    back, [stored] = ray.get(echo.remote(value)), ray.get([ray.put(value)])
    same = type(back) is type(value) and back == value and type(stored) is type(value) and stored == value
    print(type(value).__name__, "ok" if same else f"differs: {back!r}")

print("enum identity:", ray.get(echo.remote(Colour.RED)) is Colour.RED)
print("class itself:", ray.get(echo.remote(Item)) is Item, ray.get(echo.remote(Derived))().greet())
print("reduce:", ray.get(echo.remote(Reduced(1))).value)
print("functions:", ray.get(echo.remote(closure(5)))(1), ray.get(echo.remote(lambda x: x * 2))(4))
print("partial:", ray.get(echo.remote(functools.partial(closure(1), 2)))())
print("method:", ray.get(echo.remote(Item("n", 2.0).total))(3))
print(ray.get(describe.remote(Pair(left=3, right="s"))), ray.get(describe.remote(Derived()))[1].greet())
recursive = [1]
recursive.append(recursive)
back = ray.get(echo.remote(recursive))
print("recursive:", back[1] is back)
shared = [0]
one, two = ray.get(echo.remote((shared, shared)))
print("shared:", one is two)
for bad in ((i for i in range(3)), open(__file__), __import__("threading").Lock()):
    try:
        echo.remote(bad)
        print("accepted")
    except TypeError as error:
        print("TypeError:", "pickle" in str(error))
