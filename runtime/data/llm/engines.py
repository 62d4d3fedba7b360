"""What a stage asks of a language model. An engine of your own is a class of this form, named in the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

TaskType = Literal["generate", "embed", "classify", "score"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One row for the model.

    Attributes:
        prompt: text; None if the row has tokens only.
        tokens: of the prompt; None: the engine tokenizes.
        params: the row's `sampling_params` or `pooling_params`, under vLLM's names.
        model: the row's `model`, the name of an adapter; None: the model itself.
        images: the row's `image`, for models that take some.
    """

    prompt: str | None = None
    tokens: tuple[int, ...] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    images: Any = None


@dataclass(frozen=True, kw_only=True)
class Output:
    """What the model made of a request.

    Attributes:
        prompt_tokens: the tokens that the model read.
        text, tokens: what it generated; None for embeddings.
        embeddings: an array of floats; None for text.
        metrics: whatever the engine measures of a request.
    """

    prompt_tokens: tuple[int, ...]
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    embeddings: Any = None
    metrics: Mapping[str, Any] | None = None


class Engine(Protocol):
    """A model in an actor. Constructed once in each actor of the pool."""

    def __init__(self, model: str, task: TaskType, options: Mapping[str, Any]) -> None:
        """Loads the model.

        Args:
            model: a name or a folder.
            options: the configuration's `engine_kwargs`.
        """

    async def run(self, requests: Sequence[Request]) -> Sequence[Output | BaseException]:
        """An output or an error for each request, in order. Several calls may run at a time."""


def grouped(requests: Sequence[Request]) -> dict[str, list[int]]:
    """Places of requests with equal parameters, for engines that run a batch with one set of them."""
    places: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        places.setdefault(repr(sorted(request.params.items())), []).append(place)
    return places
