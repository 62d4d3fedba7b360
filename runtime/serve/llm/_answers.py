"""OpenAI's responses from the pieces of an answer: whole ones and streams of server-sent events."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from runtime.serve.llm._engine.interface import Token
from runtime.serve.llm._generation import Piece
from runtime.serve.llm.openai_api_models import (
    ChatChoice,
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionStreamResponse,
    ChatLogprobs,
    ChatMessage,
    ChatStreamChoice,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
    CompletionStreamResponse,
    DeltaMessage,
    TokenLogprob,
    TopLogprob,
    UsageInfo,
)

DONE = "data: [DONE]\n\n"


def event(body: BaseModel) -> str:
    """A server-sent event with the fields that were set."""
    return f"data: {body.model_dump_json(exclude_unset=True)}\n\n"


@dataclass
class _Choice:
    """What came of one choice."""

    text: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    finish: str | None = None
    offset: int = 0


class Answer(ABC):
    """The answer to one request.

    Args:
        model: as the request names it.
        tokenizer: for the texts of single tokens.
        prompt_tokens: of all prompts.
        choices: how many there are.
    """

    prefix: str

    def __init__(self, request_id: str, model: str, tokenizer: Any, prompt_tokens: int, choices: int) -> None:
        self._head: dict[str, Any] = {
            "id": f"{self.prefix}-{request_id}",
            "created": int(time.time()),
            "model": model,
        }
        self._tokenizer = tokenizer
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        self._choices = [_Choice() for _ in range(choices)]

    @property
    def usage(self) -> UsageInfo:
        """So far."""
        prompt, completion = self._prompt_tokens, self._completion_tokens
        return UsageInfo(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)

    async def whole(self, pieces: AsyncIterator[Piece]) -> BaseModel:
        """The response that has everything."""
        async for piece in pieces:
            choice = self._choices[piece.choice]
            choice.text.append(piece.text)
            choice.tokens += piece.tokens
            choice.finish = piece.finish
            self._completion_tokens += len(piece.tokens)
        return self._response()

    async def events(self, pieces: AsyncIterator[Piece], with_usage: bool) -> AsyncGenerator[str, None]:
        """Server-sent events, up to "[DONE]".

        Args:
            with_usage: tell the usage before the end.
        """
        for chunk in self._first_chunks():
            yield event(chunk)
        async for piece in pieces:
            self._completion_tokens += len(piece.tokens)
            yield "".join(event(chunk) for chunk in self._chunks(piece))
        if with_usage:
            yield event(self._usage_chunk())
        yield DONE

    def _text_of(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))

    @abstractmethod
    def _response(self) -> BaseModel: ...

    def _first_chunks(self) -> list[BaseModel]:
        return []

    @abstractmethod
    def _chunks(self, piece: Piece) -> list[BaseModel]: ...

    @abstractmethod
    def _usage_chunk(self) -> BaseModel: ...


class CompletionAnswer(Answer):
    """Of /v1/completions."""

    prefix = "cmpl"

    def __init__(self, request: CompletionRequest, *args: Any) -> None:
        super().__init__(request.request_id, *args)
        self._has_logprobs = request.logprobs is not None

    def _response(self) -> BaseModel:
        choices = [
            CompletionChoice(
                index=index,
                text="".join(choice.text),
                logprobs=self._logprobs(choice, choice.tokens),
                finish_reason=choice.finish,
            )
            for index, choice in enumerate(self._choices)
        ]
        return CompletionResponse(**self._head, choices=choices, usage=self.usage)

    def _chunks(self, piece: Piece) -> list[BaseModel]:
        choice = CompletionChoice(index=piece.choice, text=piece.text, finish_reason=piece.finish)
        if self._has_logprobs:
            choice.logprobs = self._logprobs(self._choices[piece.choice], piece.tokens)
        return [self._chunk(choices=[choice])]

    def _usage_chunk(self) -> BaseModel:
        return self._chunk(choices=[], usage=self.usage)

    def _chunk(self, **fields: Any) -> BaseModel:
        return CompletionStreamResponse(object="text_completion", **self._head, **fields)

    def _logprobs(
        self, choice: _Choice, tokens: list[Token] | tuple[Token, ...]
    ) -> CompletionLogprobs | None:
        if not self._has_logprobs:
            return None
        told = CompletionLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
        for token in tokens:
            text = self._text_of(token.id)
            told.text_offset.append(choice.offset)
            told.tokens.append(text)
            told.token_logprobs.append(token.logprob)
            told.top_logprobs.append({self._text_of(other): logprob for other, logprob in token.top} or None)
            choice.offset += len(text)
        return told


class ChatAnswer(Answer):
    """Of /v1/chat/completions."""

    prefix = "chatcmpl"

    def __init__(self, request: ChatCompletionRequest, *args: Any) -> None:
        super().__init__(request.request_id, *args)
        self._has_logprobs = bool(request.logprobs)

    def _response(self) -> BaseModel:
        choices = [
            ChatChoice(
                index=index,
                message=ChatMessage(role="assistant", content="".join(choice.text)),
                logprobs=self._logprobs(choice.tokens),
                finish_reason=choice.finish,
            )
            for index, choice in enumerate(self._choices)
        ]
        return ChatCompletionResponse(**self._head, choices=choices, usage=self.usage)

    def _first_chunks(self) -> list[BaseModel]:
        delta = DeltaMessage(role="assistant", content="")
        return [
            self._chunk(choices=[ChatStreamChoice(index=index, delta=delta, finish_reason=None)])
            for index in range(len(self._choices))
        ]

    def _chunks(self, piece: Piece) -> list[BaseModel]:
        delta = DeltaMessage(content=piece.text) if piece.text else DeltaMessage()
        choice = ChatStreamChoice(index=piece.choice, delta=delta, finish_reason=piece.finish)
        if self._has_logprobs:
            choice.logprobs = self._logprobs(piece.tokens)
        return [self._chunk(choices=[choice])]

    def _usage_chunk(self) -> BaseModel:
        return self._chunk(choices=[], usage=self.usage)

    def _chunk(self, **fields: Any) -> BaseModel:
        return ChatCompletionStreamResponse(object="chat.completion.chunk", **self._head, **fields)

    def _logprobs(self, tokens: list[Token] | tuple[Token, ...]) -> ChatLogprobs | None:
        if not self._has_logprobs:
            return None
        content = [
            TokenLogprob(
                **self._told(token.id, token.logprob or 0.0),
                top_logprobs=[TopLogprob(**self._told(other, logprob)) for other, logprob in token.top],
            )
            for token in tokens
        ]
        return ChatLogprobs(content=content)

    def _told(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._text_of(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
