"""Search with Ax."""

from runtime.tune.search.ax.ax_search import AxSearch

__all__ = ["AxSearch"]
