"""Search with BOHB, together with the scheduler HyperBandForBOHB."""

from runtime.tune.search.bohb.bohb_search import TuneBOHB

__all__ = ["TuneBOHB"]
