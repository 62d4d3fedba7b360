"""What the consumer asks of an execution, and what it is given. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .bundles import Bundle


@dataclass(frozen=True, slots=True)
class Next:
    """Asks for the next bundle; None at the end. `done`: numbers of delivered bundles that the consumer has let go."""

    done: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Close:
    """The consumer wants no more."""


@dataclass(frozen=True, slots=True)
class Resize:
    """The budget is another from now on."""

    budget_bytes: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A bundle for the consumer, with the number by which it lets it go."""

    number: int
    bundle: Bundle
