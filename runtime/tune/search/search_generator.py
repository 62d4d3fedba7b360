"""A searcher together with the fixed values of a search space and the number of trials."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from runtime.tune.search.repeater import Repeater
from runtime.tune.search.searcher import Searcher, pass_search_properties
from runtime.tune.space.compiled import Space, leaves, path_name
from runtime.tune.space.tags import flat_values, format_vars

logger = logging.getLogger(__name__)


class SearchGenerator(Searcher):
    """Completes the suggestions of a searcher with the fixed values of `param_space`, up to `num_samples` of them.

    It has the same methods as BasicVariantGenerator: `configure`, `suggest`, `tag_of`, `total`.

    Args:
        searcher: The searcher to ask.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"SearchGenerator needs a Searcher, got {searcher!r}")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher = searcher
        self._space = Space({})
        self._num_samples: float = 1
        self._asked = 0
        self._live: dict[str, dict[Any, Any]] = {}

    @property
    def metric(self) -> Any:
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        return self.searcher.mode

    def configure(self, param_space: Mapping[str, Any], num_samples: float = 1) -> None:
        """Sets the fixed values and how many suggestions are asked for (-1: no end)."""
        if num_samples != -1 and num_samples < 1:
            raise ValueError(f"`num_samples` must be at least 1, or -1 for no end, got {num_samples}")
        if isinstance(self.searcher, Repeater) and num_samples % self.searcher.repeat:
            logger.warning(
                "num_samples=%s is not a multiple of the %d trials per configuration: the last ones will not count",
                num_samples,
                self.searcher.repeat,
            )
        self._space = Space(param_space)
        self._num_samples = float("inf") if num_samples == -1 else num_samples
        self._asked = 0

    @property
    def total(self) -> int | None:
        """How many trials there will be at most, or None for no end."""
        return None if self._num_samples == float("inf") else int(self._num_samples)

    def set_search_properties(
        self,
        metric: str | list[str] | None,
        mode: str | list[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        """Passes metric, mode and space to the searcher.

        Raises:
            ValueError: The searcher does not take the space (it has its own, or cannot convert one), but `config`
                has parameters to search.
        """
        taken = pass_search_properties(self.searcher, metric, mode, config, spec)
        open_paths = Space(config).open_paths
        if not taken and open_paths:
            raise ValueError(
                f"{type(self.searcher).__name__} does not search param_space, since it was made with a space of its "
                f"own or takes none. Move '{path_name(open_paths[0])}' to the searcher's space, or give it a fixed "
                "value in param_space."
            )
        return taken

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Returns a complete configuration, None to be asked again later, or FINISHED."""
        if self._asked >= self._num_samples:
            return self.FINISHED
        suggestion = self.searcher.suggest(trial_id)
        if not isinstance(suggestion, dict):
            return suggestion
        return self._completed(trial_id, suggestion)

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        self.searcher.replay(trial_id, config)
        self._completed(trial_id, config)

    def _completed(self, trial_id: str, suggestion: dict[str, Any]) -> dict[str, Any]:
        self._asked += 1
        self._live[trial_id] = dict(leaves(suggestion))
        config = self._space.fresh()
        _merge(config, suggestion)
        return config

    def tag_of(self, trial_id: str) -> str:
        """Returns the values suggested for a trial that has not completed, such as `x=0.5000,y=2`."""
        return format_vars(self._live.get(trial_id, {}))

    def evaluated_params_of(self, trial_id: str) -> dict[str, Any]:
        """Returns the values suggested for a trial that has not completed, by name (`a/b` for nested ones)."""
        return flat_values(self._live.get(trial_id, {}))

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self._live.pop(trial_id, None)
        self.searcher.on_trial_complete(trial_id, result=result, error=error)

    def save(self, checkpoint_path: str) -> None:
        """Writes the state of the searcher."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)


def _merge(config: dict[Any, Any], suggestion: Mapping[Any, Any]) -> None:
    for key, value in suggestion.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            _merge(config[key], value)
        else:
            config[key] = value
