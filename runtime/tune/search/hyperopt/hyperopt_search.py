"""Search with HyperOpt's tree-structured Parzen estimators."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

from runtime.tune.search.conversion import Nesting, parameters_of, require
from runtime.tune.search.hyperopt.space import assignment, expressions
from runtime.tune.search.library import LibrarySearch, plain


class HyperOptSearch(LibrarySearch):
    """Suggests what HyperOpt's TPE suggests.

    Args:
        space: A dict of HyperOpt's expressions (`hp.uniform("x", 0, 1)`), which may be nested and have fixed values.
            None for the tuner's `param_space`, of which values of `choice` may have parameters themselves.
        metric: The value to optimize.
        mode: "min" or "max".
        points_to_evaluate: Configurations to try first, with all parameters.
        n_initial_points: How many configurations are random at first.
        random_state_seed: The seed. With None one is drawn.
        gamma: Which part of the trials counts as good.

    Raises:
        ImportError: HyperOpt is not installed.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        library = require("hyperopt", "HyperOptSearch", "hyperopt")
        self.seed = random.SystemRandom().getrandbits(31) if random_state_seed is None else random_state_seed
        self._seeds = random.Random(self.seed)
        self._algorithm = functools.partial(
            library.tpe.suggest, n_startup_jobs=n_initial_points, gamma=gamma, verbose=False
        )
        self._expressions: Mapping[str, Any] = {}
        self._nesting: Nesting | None = None
        self._running: dict[str, dict[str, Any]] = {}
        super().__init__(space, metric, mode, points_to_evaluate)

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> dict[str, Any]:
        """Returns HyperOpt's expressions for a search space, by name.

        Raises:
            ValueError: HyperOpt has nothing that corresponds to a parameter; the message names it.
        """
        return expressions(spec)

    def _read_param_space(self, param_space: Mapping[str, Any]) -> None:
        self._expressions = expressions(param_space)
        paths = [parameter.path for parameter in parameters_of(param_space, "HyperOptSearch", nested=True)]
        self._nesting = Nesting(paths, param_space)

    def _read_own_space(self, space: Mapping[str, Any]) -> None:
        self._expressions = space

    def _start(self) -> None:
        import hyperopt

        self._trials = hyperopt.Trials()
        self._domain = hyperopt.Domain(_identity, self._expressions)

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Returns the next configuration.

        Raises:
            RuntimeError: There is no space, metric or mode.
        """
        self._check_started()
        if self._points:
            return self._add(trial_id, self._assigned(self._points.pop(0)))
        (document,) = self._algorithm(
            self._trials.new_trial_ids(1), self._domain, self._trials, self._seeds.randrange(2**31 - 1)
        )
        return self._insert(trial_id, document)

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a suggestion of an experiment that is being restored, without computing it once more."""
        self._check_started()
        if self._points:
            self._points.pop(0)
        else:
            self._seeds.randrange(2**31 - 1)
        self._add(trial_id, self._assigned(config))

    def _assigned(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return assignment(self._expressions, self._nesting.flat(config) if self._nesting else config)

    def _add(self, trial_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Adds a trial with these values by label."""
        (tid,) = self._trials.new_trial_ids(1)
        misc = {
            "tid": tid,
            "cmd": self._domain.cmd,
            "workdir": self._domain.workdir,
            "idxs": {label: [tid] if label in values else [] for label in self._domain.params},
            "vals": {label: [values[label]] if label in values else [] for label in self._domain.params},
        }
        (document,) = self._trials.new_trial_docs([tid], [None], [self._domain.new_result()], [misc])
        return self._insert(trial_id, document)

    def _insert(self, trial_id: str, document: dict[str, Any]) -> dict[str, Any]:
        import hyperopt

        self._trials.insert_trial_docs([document])
        self._trials.refresh()
        self._running[trial_id] = document
        values = {
            label: plain(chosen[0]) for label, chosen in document["misc"]["vals"].items() if len(chosen)
        }
        made: dict[str, Any] = _python_values(hyperopt.space_eval(self._expressions, values))
        return self._nesting.nested(made) if self._nesting else made

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells HyperOpt the metric's value; a trial without one has failed."""
        document = self._running.pop(trial_id, None)
        if document is None:
            return
        import hyperopt

        loss = None if error else self._loss(result)
        if loss is None:
            document["state"] = hyperopt.JOB_STATE_ERROR
            document["misc"]["error"] = ("Failed", f"Trial {trial_id} has no value of {self.metric}")
        else:
            document["state"] = hyperopt.JOB_STATE_DONE
            document["result"] = {"loss": loss, "status": hyperopt.STATUS_OK}
        self._trials.refresh()


def _identity(configuration: Any) -> Any:
    return configuration


def _python_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _python_values(item) for key, item in value.items()}
    return plain(value)
