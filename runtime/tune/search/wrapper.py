"""What searchers around another searcher have in common."""

from __future__ import annotations

from typing import Any

from runtime.tune.search.searcher import Searcher, pass_search_properties


class SearcherWrapper(Searcher):
    """Base of searchers that ask another one, which has the metric, the mode and the space.

    Args:
        searcher: The searcher to ask.
    """

    def __init__(self, searcher: Searcher) -> None:
        super().__init__(searcher.metric, searcher.mode)
        self.searcher = searcher

    @property
    def metric(self) -> Any:
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        return self.searcher.mode

    def set_search_properties(
        self,
        metric: str | list[str] | None,
        mode: str | list[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        return pass_search_properties(self.searcher, metric, mode, config, spec)

    def save(self, checkpoint_path: str) -> None:
        """Writes the state of the searcher that is asked."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)
