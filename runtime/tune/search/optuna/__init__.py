"""Search with Optuna."""

from runtime.tune.search.optuna.optuna_search import OptunaSearch

__all__ = ["OptunaSearch"]
