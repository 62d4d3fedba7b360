"""Search with the package bayesian-optimization."""

from runtime.tune.search.bayesopt.bayesopt_search import BayesOptSearch

__all__ = ["BayesOptSearch"]
