"""Random and grid search."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.tune.search.searcher import Searcher
from runtime.tune.space.compiled import Space
from runtime.tune.space.randomness import random_source
from runtime.tune.space.tags import flat_values, format_vars
from runtime.tune.space.variants import Variant, count_variants, preset_space, variants


class BasicVariantGenerator(Searcher):
    """Tries every combination of the grids `num_samples` times and samples all other parameters.

    It is used if no other search algorithm is given. Configurations are made one at a time.

    Args:
        points_to_evaluate: Configurations to try first. Each takes the place of one of the `num_samples`; parameters
            that it leaves out are sampled, grids that it leaves out are tried entirely.
        max_concurrent: How many trials may run at once; 0 for no limit.
        constant_grid_search: Whether samples stay the same over the grid.
        random_state: A seed, a `random.Random` or a generator of numpy. With None a seed is drawn.

    Attributes:
        seed: The seed in use: given again, it repeats the configurations. None if `random_state` is a generator.
    """

    def __init__(
        self,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__()
        if max_concurrent < 0:
            raise ValueError(f"`max_concurrent` must be 0 (no limit) or more, got {max_concurrent}")
        self.max_concurrent = max_concurrent
        self.seed: int | None = None
        if random_state is None:
            random_state = random.SystemRandom().getrandbits(32)
        if isinstance(random_state, int):
            self.seed = random_state
        random_source(random_state)  # raises for what is no source of random numbers
        self._random_state = random_state
        self._points = list(points_to_evaluate or [])
        self._constant_grid_search = constant_grid_search
        self._space: Space | None = None
        self._param_space: Mapping[str, Any] = {}
        self._num_samples: float = 1
        self._asked = 0
        self._variants: Iterator[Variant] | None = None
        self._live: dict[str, dict[Any, Any]] = {}

    def configure(self, param_space: Mapping[str, Any], num_samples: float = 1) -> None:
        """Sets what to search.

        Args:
            param_space: The search space.
            num_samples: How often to try the whole grid; -1 for no end.

        Raises:
            ValueError: `num_samples` is not possible, or a point of `points_to_evaluate` does not fit the space.
        """
        if num_samples != -1 and num_samples < 1:
            raise ValueError(f"`num_samples` must be at least 1, or -1 for no end, got {num_samples}")
        self._space = Space(param_space)
        self._param_space = param_space
        self._num_samples = float("inf") if num_samples == -1 else num_samples
        self._presets = [preset_space(param_space, point) for point in self._points]
        self._asked = 0
        self._variants = None

    @property
    def total(self) -> int | None:
        """How many trials there will be, or None if that is not known: without end, or with nested grids."""
        if self._space is None:
            return 0
        grid = count_variants(self._space)
        presets = [count_variants(space) for space in self._presets]
        left = max(self._num_samples - len(presets), 0)
        if left == float("inf") or None in presets or grid is None:
            return None
        return sum(count for count in presets if count is not None) + int(left) * grid

    @property
    def total_samples(self) -> int:
        """Ray's name of `total`; 0 if the number is not known."""
        return self.total or 0

    def set_search_properties(
        self,
        metric: str | list[str] | None,
        mode: str | list[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        """Takes note of metric and mode; the space comes with `configure`."""
        self._metric, self._mode = metric, mode
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Returns the next configuration, None while `max_concurrent` trials run, or FINISHED.

        Raises:
            ValueError: A parameter cannot be sampled; the message names it.
        """
        if self.max_concurrent and len(self._live) >= self.max_concurrent:
            return None
        variant = self._next()
        if variant is None:
            return self.FINISHED
        self._live[trial_id] = variant.resolved
        return variant.config

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a `suggest`, whatever the limit of concurrent trials is now."""
        variant = self._next()
        self._live[trial_id] = {} if variant is None else variant.resolved

    def tag_of(self, trial_id: str) -> str:
        """Returns the values chosen for a trial that has not completed, such as `x=0.5000,y=2`."""
        return format_vars(self._live.get(trial_id, {}))

    def evaluated_params_of(self, trial_id: str) -> dict[str, Any]:
        """Returns the values chosen for a trial that has not completed, by name (`a/b` for nested ones)."""
        return flat_values(self._live.get(trial_id, {}))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self._live.pop(trial_id, None)

    def save(self, checkpoint_path: str) -> None:
        """Writes how many configurations were given, and what repeats them."""
        with open(checkpoint_path, "wb") as file:
            pickle.dump((self._random_state, self._asked, self._live), file)

    def restore(self, checkpoint_path: str) -> None:
        """Goes on where `save` was called; `configure` must have been called with the same space."""
        with open(checkpoint_path, "rb") as file:
            self._random_state, asked, live = pickle.load(file)
        self.seed = self._random_state if isinstance(self._random_state, int) else None
        self._asked = asked
        self._variants = None
        self._live = live

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_variants": None}  # an iterator cannot be pickled: `_next` makes it again

    def _next(self) -> Variant | None:
        if self._variants is None:
            self._variants = self._all_variants()
            for _ in range(self._asked):
                next(self._variants, None)
        variant = next(self._variants, None)
        self._asked += variant is not None
        return variant

    def _all_variants(self) -> Iterator[Variant]:
        if self._space is None:
            raise RuntimeError(
                "BasicVariantGenerator has no search space: call configure(param_space, num_samples)"
            )
        # A copy, since the original must be able to start over.
        source = random_source(copy.deepcopy(self._random_state))
        for preset in self._presets:
            yield from variants(preset, source, self._constant_grid_search)
        done = len(self._presets)
        while done < self._num_samples:
            yield from variants(self._space, source, self._constant_grid_search)
            done += 1
