"""Pieces one after the other."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from runtime.rllib.utils.metrics import CONNECTOR_PIPELINE_TIMER, CONNECTOR_TIMERS, TIMERS

from .connector_v2 import Batch, ConnectorV2, has_columns_form

logger = logging.getLogger(__name__)

NameOrClass = str | type[ConnectorV2]


class ConnectorPipelineV2(ConnectorV2):
    """Calls its pieces in order; each gets the batch that the one before returned.

    Args:
        input_observation_space: Before the first piece.
        input_action_space: Before the first piece.
        connectors: Pieces and pipelines, or tuples (class, args, kwargs) to build them.
    """

    # The name of the method of pieces that work on columns; see `vectorized`.
    columns_method: ClassVar[str | None] = None
    # The keys under which the number of the episodes' steps before and behind the pipeline is logged, if it is.
    length_keys: ClassVar[tuple[Any, Any] | None] = None
    # Where times are logged, and whether the caller explores, unless the caller says so.
    metrics_prefix: ClassVar[tuple[str, ...]] = ()
    explores: ClassVar[bool | None] = None

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        connectors: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.connectors: list[ConnectorV2] = []
        for piece in connectors or ():
            if isinstance(piece, tuple):
                cls, args, settings = piece
                piece = cls(*args, **settings)
            self.connectors.append(_checked(piece))
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch | None = None,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        """Calls all pieces. With `metrics`, each one's time is logged below `kwargs["metrics_prefix_key"]`.

        Raises:
            ValueError: a piece returned no batch.
        """
        batch = {} if batch is None else batch
        explore = self.explores if explore is None else explore
        shared_data = {} if shared_data is None else shared_data
        prefix = kwargs.setdefault("metrics_prefix_key", self.metrics_prefix)
        self._log_length(metrics, 0, episodes)
        with _timed(metrics, (*prefix, CONNECTOR_PIPELINE_TIMER)):
            for piece in self.connectors:
                kwargs["data"] = batch
                with _timed(metrics, (*prefix, TIMERS, CONNECTOR_TIMERS, _snake_case(type(piece).__name__))):
                    batch = piece(
                        rl_module=rl_module,
                        batch=batch,
                        episodes=episodes,
                        explore=explore,
                        shared_data=shared_data,
                        metrics=metrics,
                        **kwargs,
                    )
                if not isinstance(batch, dict):
                    raise ValueError(
                        f"Connector {piece} must return the batch, a dict; it returned {batch!r}"
                    )
        self._log_length(metrics, 1, episodes)
        return batch

    def _log_length(self, metrics: Any, which: int, episodes: list[Any]) -> None:
        if metrics is not None and self.length_keys is not None:
            metrics.log_value(self.length_keys[which], sum(map(len, episodes)))

    def vectorized(self) -> list[ConnectorV2] | None:
        """The pieces whose methods on columns stand for this pipeline, or None if it needs episodes.

        Default pieces are left out: this is for pipelines that have them all, with the user's pieces in their place.
        """
        return self._with_method(self.columns_method)

    def _with_method(self, method: str | None) -> list[ConnectorV2] | None:
        found: list[ConnectorV2] = []
        for piece in self.connectors:
            if isinstance(piece, ConnectorPipelineV2):
                below = piece._with_method(method)
                if below is None:
                    return None
                found.extend(below)
            elif method is not None and has_columns_form(piece, method):
                found.append(piece)
            elif not (hasattr(piece, "is_default_piece") and has_columns_form(piece, "is_default_piece")):
                return None
        return found

    # ------------------------------------------------------------ changes

    def append(self, connector: ConnectorV2) -> None:
        """Adds a piece to the end."""
        self._insert(len(self.connectors), connector)

    def prepend(self, connector: ConnectorV2) -> None:
        """Adds a piece to the beginning."""
        self._insert(0, connector)

    def insert_before(self, name_or_class: NameOrClass, connector: ConnectorV2) -> ConnectorV2:
        """Adds a piece before another one, which is returned.

        Raises:
            ValueError: there is no such other piece.
        """
        place = self._place(name_or_class)
        found = self.connectors[place]
        self._insert(place, connector)
        return found

    def insert_after(self, name_or_class: NameOrClass, connector: ConnectorV2) -> ConnectorV2:
        """Adds a piece behind another one, which is returned.

        Raises:
            ValueError: there is no such other piece.
        """
        place = self._place(name_or_class)
        found = self.connectors[place]
        self._insert(place + 1, connector)
        return found

    def remove(self, name_or_class: NameOrClass) -> None:
        """Removes the first piece of this name or class. If there is none, it only logs a warning."""
        try:
            del self.connectors[self._place(name_or_class)]
        except ValueError as error:
            logger.warning("Nothing was removed: %s", error)
        self._fix_spaces()

    def _insert(self, place: int, connector: ConnectorV2) -> None:
        self.connectors.insert(place, _checked(connector))
        self._fix_spaces()

    def _place(self, name_or_class: NameOrClass) -> int:
        for place, piece in enumerate(self.connectors):
            if name_or_class in (type(piece), type(piece).__name__):
                return place
        names = ", ".join(type(piece).__name__ for piece in self.connectors) or "no pieces"
        raise ValueError(
            f"There is no connector {name_or_class!r} in this {type(self).__name__}, which has {names}"
        )

    def __len__(self) -> int:
        return len(self.connectors)

    def __getitem__(self, key: Any) -> Any:
        """The piece at a number, or the list of the pieces of a class or of the name of a class."""
        if isinstance(key, int):
            return self.connectors[key]
        if isinstance(key, str):
            return [piece for piece in self.connectors if type(piece).__name__ == key]
        return [piece for piece in self.connectors if issubclass(type(piece), key)]

    # ------------------------------------------------------------ spaces

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        self._pass_spaces(input_observation_space, input_action_space)
        return self.connectors[-1].observation_space if self.connectors else input_observation_space

    def recompute_output_action_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        self._pass_spaces(input_observation_space, input_action_space)
        return self.connectors[-1].action_space if self.connectors else input_action_space

    def _pass_spaces(self, observation_space: Any, action_space: Any) -> None:
        for piece in self.connectors:
            piece.input_action_space = action_space
            piece.input_observation_space = observation_space
            observation_space, action_space = piece.observation_space, piece.action_space

    def _fix_spaces(self) -> None:
        self.input_action_space = self.input_action_space
        self.input_observation_space = self.input_observation_space

    # ------------------------------------------------------------ state

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The pieces by names that are different for pieces of one class."""
        return [(f"{place:03d}_{type(piece).__name__}", piece) for place, piece in enumerate(self.connectors)]

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The states of the pieces that have one, by `get_checkpointable_components`."""
        states = {}
        for name, piece in self.get_checkpointable_components():
            if not self._check_component(name, components, not_components):
                continue
            if state := piece.get_state(self._get_subcomponents(name, components), **kwargs):
                states[name] = state
        return states

    def set_state(self, state: dict[str, Any]) -> None:
        for name, piece in self.get_checkpointable_components():
            if name in state:
                piece.set_state(state[name])

    def reset_state(self) -> None:
        for piece in self.connectors:
            piece.reset_state()

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        merged = {}
        for name, piece in self.get_checkpointable_components():
            if below := piece.merge_states([state[name] for state in states if name in state]):
                merged[name] = below
        return merged

    def __str__(self, indentation: int = 0) -> str:
        lines = [" " * indentation + type(self).__name__]
        return "\n".join([*lines, *(piece.__str__(indentation + 4) for piece in self.connectors)])

    __repr__ = __str__


def _checked(piece: Any) -> ConnectorV2:
    if not isinstance(piece, ConnectorV2):
        raise ValueError(f"A pipeline consists of ConnectorV2 objects; {piece!r} is none")
    return piece


def _timed(metrics: Any, key: tuple[str, ...]) -> Any:
    return contextlib.nullcontext() if metrics is None else metrics.log_time(key)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
