"""What domains and samplers are: a domain has a sampler, which draws from it by the domain's own methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.tune.space.randomness import RandomSource, random_source


class Domain:
    """A set of values and, once a method such as `uniform()` is called, how to draw from it.

    Those methods return a copy and leave the domain as it is.
    """

    sampler: Sampler | None = None
    default_sampler_cls: type[Sampler] | None = None

    def cast(self, value: Any) -> Any:
        """Returns the value as the domain's type."""
        return value

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """Sets the sampler.

        Raises:
            ValueError: There is one already, and `allow_override` is not set.
        """
        if self.sampler is not None and not allow_override:
            raise ValueError(f"{self!r} has the sampler {self.sampler}: it cannot have {sampler} as well")
        self.sampler = sampler

    def get_sampler(self) -> Sampler:
        """Returns the sampler, or the domain's default one."""
        if self.sampler is not None:
            return self.sampler
        if self.default_sampler_cls is None:
            raise ValueError(f"{self!r} has no sampler")
        return self.default_sampler_cls()

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draws one value, or a list of `size` values if that is greater than 1.

        Args:
            config: The values of other parameters, for `sample_from`.
            size: How many values to draw.
            random_state: None, a seed, a `random.Random` or a generator of numpy.
        """
        return self.get_sampler().sample(self, config, size, random_state)

    def is_grid(self) -> bool:
        """Whether all values are tried in turn."""
        return self.sampler is not None and self.sampler.is_grid

    def is_function(self) -> bool:
        """Whether values come from a user's function, which may look at other parameters."""
        return False

    def is_valid(self, value: Any) -> bool:
        """Whether the domain has this value."""
        raise NotImplementedError

    @property
    def domain_str(self) -> str:
        """The values in short, for messages."""
        return "(unknown)"

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.domain_str}"

    def draw_uniform(self, source: RandomSource) -> Any:
        raise TypeError(f"{self!r} cannot be sampled uniformly")

    def draw_loguniform(self, source: RandomSource) -> Any:
        raise TypeError(f"{self!r} cannot be sampled log-uniformly")

    def draw_normal(self, source: RandomSource, mean: float, sd: float) -> Any:
        raise TypeError(f"{self!r} cannot be sampled from a normal distribution")

    def draw_call(self, config: Any) -> Any:
        raise TypeError(f"{self!r} has no function to call")

    def quantized_domain(self, q: float) -> tuple[Domain, Callable[[Any], Any]]:
        """Returns the domain to draw from and the function that makes a multiple of `q` of what was drawn."""
        raise TypeError(f"{self!r} cannot be quantized")


class Sampler:
    """Base of all samplers. Subclass it and override `sample` to draw in a way of your own."""

    is_grid = False

    def sample(self, domain: Domain, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draws from `domain`.

        Args:
            domain: What to draw from.
            config: The values that are resolved so far (a list with one per sample is also possible).
            size: How many values to draw.
            random_state: None, a seed, a `random.Random` or a generator of numpy.

        Returns:
            One value, or a list of them if `size` is greater than 1.
        """
        raise NotImplementedError


class BaseSampler(Sampler):
    """Base of the samplers of this package: they define how to draw one value."""

    def sample(self, domain: Domain, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        source = random_source(random_state)
        if size > 1:
            configs = config if isinstance(config, list) else [config] * size
            return [domain.cast(self.draw(domain, one, source)) for one in configs]
        one = config[0] if isinstance(config, list) else config
        return domain.cast(self.draw(domain, one, source))

    def draw(self, domain: Domain, config: Any, source: RandomSource) -> Any:
        """Draws one value, which the domain then casts to its type."""
        raise NotImplementedError

    def __str__(self) -> str:
        return type(self).__name__
