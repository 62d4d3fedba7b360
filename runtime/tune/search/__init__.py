"""Search algorithms: random and grid search, wrappers, and those of other libraries, which load on first use.

A Searcher suggests configurations and learns from results. It does no I/O but `save` and `restore`, so an experiment
can be replayed. This package uses `runtime.tune.space`.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

_PUBLIC = {
    "runtime.tune.search.basic_variant": ("BasicVariantGenerator",),
    "runtime.tune.search.concurrency_limiter": ("ConcurrencyLimiter",),
    "runtime.tune.search.repeater": ("Repeater",),
    "runtime.tune.search.search_generator": ("SearchGenerator",),
    "runtime.tune.search.searcher": ("Searcher",),
    "runtime.tune.space.public": ("grid_search",),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

_ALGORITHMS = {
    "variant_generator": "runtime.tune.search.basic_variant.BasicVariantGenerator",
    "random": "runtime.tune.search.basic_variant.BasicVariantGenerator",
    "optuna": "runtime.tune.search.optuna.OptunaSearch",
    "hyperopt": "runtime.tune.search.hyperopt.HyperOptSearch",
    "ax": "runtime.tune.search.ax.AxSearch",
    "bayesopt": "runtime.tune.search.bayesopt.BayesOptSearch",
    "bohb": "runtime.tune.search.bohb.TuneBOHB",
    "nevergrad": "runtime.tune.search.nevergrad.NevergradSearch",
}

__all__ = [
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Repeater",
    "SearchAlgorithm",
    "SearchGenerator",
    "Searcher",
    "create_searcher",
    "grid_search",
]


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """Returns the search algorithm of this name, to choose one by a setting.

    Args:
        search_alg: "random" (or "variant_generator"), "optuna" and so on.
        **kwargs: Arguments of the algorithm; those that it does not have are left out.

    Raises:
        ValueError: There is no algorithm of this name.
        ImportError: The algorithm's library is not installed.
    """
    name = search_alg.lower()
    if name not in _ALGORITHMS:
        raise ValueError(
            f"There is no search algorithm {search_alg!r}; there are {', '.join(sorted(_ALGORITHMS))}"
        )
    module, _, class_name = _ALGORITHMS[name].rpartition(".")
    algorithm = getattr(importlib.import_module(module), class_name)
    known = inspect.signature(algorithm).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return algorithm(**{key: value for key, value in kwargs.items() if takes_all or key in known})


def __getattr__(name: str) -> Any:
    if name == "SearchAlgorithm":  # Ray tells these apart; here every search algorithm is a Searcher
        return __getattr__("Searcher")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
