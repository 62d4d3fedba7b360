"""Requests and responses of OpenAI's API. Unknown fields of a request are kept and have no effect; known ones that the
server cannot honour are refused by `refuse`."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from runtime.serve.llm.config import LLMConfig

MAX_CHOICES = 128
MAX_LOGPROBS = 20
MAX_STOPS = 16


class OpenAIHTTPException(Exception):
    """An error that the client is told.

    Attributes:
        status_code: of the HTTP response.
        type: "invalid_request_error" and the like.
        param: the field of the request that is wrong.
        headers: of the HTTP response.
    """

    def __init__(
        self,
        status_code: int,
        message: str,
        type: str = "invalid_request_error",
        internal_message: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status_code, message, type, internal_message, param, headers)
        self.status_code = status_code
        self.message = message
        self.type = type
        self.internal_message = internal_message
        self.param = param
        self.headers = headers

    def response(self) -> ErrorResponse:
        """The body of the HTTP response."""
        return ErrorResponse(
            error=ErrorInfo(message=self.message, type=self.type, param=self.param, code=self.status_code)
        )


def unknown_model(model: str) -> OpenAIHTTPException:
    """The error of a request for a model or adapter that is not served."""
    return OpenAIHTTPException(404, f"The model '{model}' does not exist.", "not_found_error", param="model")


class ErrorInfo(BaseModel):
    """An error. `code` is the HTTP status."""

    message: str
    type: str
    param: str | None = None
    code: int


class ErrorResponse(BaseModel):
    """The body of a response that is an error."""

    error: ErrorInfo


class _Request(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str | None = None
    user: str | None = None
    request_id: str = Field(default_factory=lambda: uuid.uuid4().hex)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        """OpenAI's clients may send null for what they leave to the server."""
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


class StreamOptions(BaseModel):
    """Of a streamed response."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool | None = False


class _Generation(_Request):
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    # Of vLLM:
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    ignore_eos: bool = False
    stop_token_ids: list[int] | None = None

    @property
    def stops(self) -> list[str]:
        """The stop sequences."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options is not None and self.stream_options.include_usage)


class CompletionRequest(_Generation):
    """Of /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    best_of: int | None = None
    echo: bool | None = False
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    max_tokens: int | None = Field(16, ge=1)
    suffix: str | None = None


class ChatCompletionRequest(_Generation):
    """Of /v1/chat/completions."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    tools: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class EmbeddingRequest(_Request):
    """Of /v1/embeddings."""

    input: str | list[str] | list[int] | list[list[int]]
    dimensions: int | None = Field(None, ge=1)
    encoding_format: Literal["float", "base64"] = "float"


def refuse(request: _Request) -> None:
    """Checks what the fields' types do not tell.

    Raises:
        OpenAIHTTPException: 400; the server does not support what a field asks for.
    """
    unsupported: dict[str, bool] = {}
    if isinstance(request, CompletionRequest):
        unsupported = {
            "best_of": request.best_of not in (None, request.n),
            "echo": bool(request.echo),
            "suffix": bool(request.suffix),
        }
    elif isinstance(request, ChatCompletionRequest):
        kind = (request.response_format or {}).get("type", "text")
        template = request.chat_template or (request.chat_template_kwargs or {}).get("chat_template")
        unsupported = {
            "chat_template": template is not None,  # it is code, which could block the replica
            "tools": bool(request.tools) and request.tool_choice != "none",
            "response_format": kind != "text",
        }
    elif isinstance(request, EmbeddingRequest):
        unsupported = {"dimensions": request.dimensions is not None}
    for name, is_used in unsupported.items():
        if is_used:
            raise OpenAIHTTPException(400, f"'{name}' is not supported by this server.", param=name)
    if isinstance(request, _Generation) and len(request.stops) > MAX_STOPS:
        raise OpenAIHTTPException(400, f"'stop' may have at most {MAX_STOPS} sequences.", param="stop")


# ---------------------------------------------------------------- responses


class UsageInfo(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class _Response(BaseModel):
    id: str
    created: int = Field(default_factory=lambda: int(time.time()))
    model: str


class CompletionLogprobs(BaseModel):
    """Of a choice of /v1/completions; one entry for each token."""

    text_offset: list[int] = []
    token_logprobs: list[float | None] = []
    tokens: list[str] = []
    top_logprobs: list[dict[str, float] | None] = []


class CompletionChoice(BaseModel):
    """A text."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None


class CompletionResponse(_Response):
    """Of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: UsageInfo


class CompletionStreamResponse(_Response):
    """A chunk of a stream."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: UsageInfo | None = None


class TopLogprob(BaseModel):
    """A token that might have been."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopLogprob):
    """A token that was generated."""

    top_logprobs: list[TopLogprob] = []


class ChatLogprobs(BaseModel):
    """Of a choice of /v1/chat/completions."""

    content: list[TokenLogprob] | None = None


class ChatMessage(BaseModel):
    """What the model says."""

    role: str = "assistant"
    content: str | None = None


class ChatChoice(BaseModel):
    """An answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class ChatCompletionResponse(_Response):
    """Of /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: UsageInfo


class DeltaMessage(BaseModel):
    """What a chunk adds."""

    role: str | None = None
    content: str | None = None


class ChatStreamChoice(BaseModel):
    """A part of an answer."""

    index: int
    delta: DeltaMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class ChatCompletionStreamResponse(_Response):
    """A chunk of a stream."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatStreamChoice]
    usage: UsageInfo | None = None


class EmbeddingData(BaseModel):
    """The embedding of one input: floats, or base64 of float32."""

    index: int
    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str


class EmbeddingResponse(_Response):
    """Of /v1/embeddings."""

    object: Literal["list"] = "list"
    data: list[EmbeddingData]
    usage: UsageInfo


class ModelCard(BaseModel):
    """A model, as /v1/models tells it."""

    id: str
    object: str = "model"
    created: int = Field(default_factory=lambda: int(time.time()))
    owned_by: str = "organization-owner"
    permission: list[str] = []
    metadata: dict[str, Any] = {}


class ModelList(BaseModel):
    """Of /v1/models."""

    data: list[ModelCard]
    object: str = "list"


def to_model_metadata(
    model_id: str, model_config: LLMConfig, overrides: dict[str, Any] | None = None
) -> ModelCard:
    """The card of a model.

    Args:
        model_id: with ":adapter" for an adapter.
        overrides: of the metadata.
    """
    metadata = {
        "model_id": model_config.model_id,
        "input_modality": model_config.input_modality,
        "max_request_context_length": model_config.max_request_context_length,
        **(overrides or {}),
    }
    return ModelCard(id=model_id, metadata=metadata)
