"""What a server asks of an engine: tokens for tokens. Text, chat templates and OpenAI's formats are the server's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from runtime.serve.llm.config import LLMConfig

Finish = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        max_tokens: how many tokens to generate at most.
        temperature: 0 takes the likeliest token.
        top_p: keep the likeliest tokens with at least this probability together.
        top_k: keep this many of the likeliest tokens; 0: all.
        min_p: keep tokens with at least this share of the likeliest one's probability.
        presence_penalty: taken from the logits of tokens that were generated before.
        frequency_penalty: likewise, once for each time.
        seed: repeats a sample; None: a random one.
        logprobs: how many alternatives to tell with each token; 0: only its own probability; None: neither.
        stop_token_ids: tokens that end the text besides the model's own.
        ignore_eos: the model's own do not end it.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A generated token.

    Attributes:
        logprob: natural logarithm of its probability in the model, before penalties, temperature and filters.
        top: (token, logprob) of the likeliest ones, the likeliest first.
        finish: of the last token: "stop" if it ends the text (it is no part of it then), "length" at `max_tokens`.
    """

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    finish: Finish | None = None


class Engine(Protocol):
    """A model in a replica. All methods are called on one event loop.

    Attributes:
        max_model_len: tokens of a prompt and its answer together; None: unknown.
    """

    max_model_len: int | None

    @property
    def tokenizer(self) -> Any:
        """Of the `transformers` library, once the engine was started."""

    def __init__(self, llm_config: LLMConfig) -> None:
        """Does not load anything yet."""

    async def start(self) -> None:
        """Loads the model.

        Raises:
            ImportError: a package is missing; the message names it.
        """

    def generate(
        self, prompt: Sequence[int], sampling: Sampling, adapter: str | None = None
    ) -> AsyncGenerator[Token, None]:
        """Tokens as they are generated; the last one has `finish`. Closing the generator ends the request.

        Args:
            prompt: at least one token.
            adapter: as given to `load_lora`; None: the model itself.
        """

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[Any]:
        """An array of floats for each prompt.

        Raises:
            ValueError: the model makes no embeddings.
        """

    async def load_lora(self, name: str, path: str) -> None:
        """Loads an adapter.

        Args:
            name: unique among all that this engine ever loads.
            path: its folder.

        Raises:
            ImportError: a package is missing.
            ValueError: the adapter does not fit the model.
        """

    def unload_lora(self, name: str) -> None:
        """Frees an adapter that no request uses. From any thread; does not wait."""

    async def check_health(self) -> None:
        """Raises if the engine cannot serve requests."""

    def close(self) -> None:
        """Ends all requests and frees the model. From any thread; a second call does nothing."""
