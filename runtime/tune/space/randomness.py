"""Where samples get their random numbers from: the standard library's generators or numpy's, behind one interface."""

from __future__ import annotations

import random
from typing import Any, Protocol, cast


class RandomSource(Protocol):
    """The draws that samplers need. `random.Random` has them."""

    def uniform(self, a: float, b: float) -> float: ...

    def randrange(self, start: int, stop: int) -> int: ...

    def gauss(self, mu: float, sigma: float) -> float: ...


class NumpySource:
    """Draws from a `numpy.random.Generator` or `numpy.random.RandomState`."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._integers = generator.integers if hasattr(generator, "integers") else generator.randint

    def uniform(self, a: float, b: float) -> float:
        return float(self._generator.uniform(a, b))

    def randrange(self, start: int, stop: int) -> int:
        return int(self._integers(start, stop))

    def gauss(self, mu: float, sigma: float) -> float:
        return float(self._generator.normal(mu, sigma))


def random_source(random_state: Any = None) -> RandomSource:
    """Returns a source for what users pass as `random_state`.

    Args:
        random_state: None (the generator of the `random` module), a seed, a `random.Random`, or a generator of numpy.

    Raises:
        TypeError: `random_state` is something else.
    """
    if isinstance(random_state, (random.Random, NumpySource)) or random_state is random:
        return random_state
    if random_state is None:
        return cast(RandomSource, random)
    if isinstance(random_state, int):
        return random.Random(random_state)
    if type(random_state).__module__.partition(".")[0] == "numpy":
        if hasattr(random_state, "normal"):
            return NumpySource(random_state)
        return random.Random(int(random_state))
    raise TypeError(
        f"random_state must be None, an int, a random.Random or a numpy random generator, got {random_state!r}"
    )
