"""The deployment that runs one model: requests in OpenAI's form to answers in OpenAI's form."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.serve import context
from runtime.serve.llm import _sources
from runtime.serve.llm._answers import Answer, ChatAnswer, CompletionAnswer
from runtime.serve.llm._engine.interface import Engine, Sampling
from runtime.serve.llm._generation import Job, generate
from runtime.serve.llm.config import LLMConfig
from runtime.serve.llm.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    CompletionResponse,
    EmbeddingData,
    EmbeddingRequest,
    EmbeddingResponse,
    ErrorResponse,
    OpenAIHTTPException,
    UsageInfo,
    refuse,
    unknown_model,
)
from runtime.serve.multiplex import multiplexed

MAX_ONGOING_REQUESTS = 256
"""Default of a deployment: so many requests are in the engine at a time. Further ones wait where they came from."""

MAX_TOKENS = 1024
"""How long an answer may be if neither the request nor the model limits it."""


@dataclass
class RawRequestInfo:
    """What a server is told of the HTTP request."""

    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_starlette_request(cls, request: Any) -> RawRequestInfo:
        """Of a Starlette request."""
        return cls(headers=dict(request.headers))


class _Adapter:
    """A loaded adapter. It is unloaded when no request has it any more."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    def __del__(self) -> None:
        self._engine.unload_lora(self.name)


class LLMServer:
    """Runs one model. `chat`, `completions` and `embeddings` yield: call them by a handle with `stream=True`.

    They yield server-sent events (str) if the request has `stream`, else one response. An `ErrorResponse` comes
    instead of a response if the request cannot be served as it is.
    """

    engine: Engine

    async def __init__(self, llm_config: LLMConfig, *, engine_cls: type[Engine] | None = None) -> None:  # type: ignore[misc]
        """Loads the model.

        Args:
            engine_cls: instead of the one that `llm_engine` names.

        Raises:
            ImportError: the engine's package is missing.
        """
        self._setup(llm_config, engine_cls)
        await self.start()

    @classmethod
    def sync_init(cls, llm_config: LLMConfig, *, engine_cls: type[Engine] | None = None) -> LLMServer:
        """A server that has not loaded its model: `await server.start()`."""
        server = cls.__new__(cls)
        server._setup(llm_config, engine_cls)
        return server

    def _setup(self, llm_config: LLMConfig, engine_cls: type[Engine] | None) -> None:
        self._llm_config = llm_config
        self.engine = (engine_cls or _engine_class(llm_config))(llm_config)
        self._numbers = itertools.count(1)
        lora = llm_config.lora_config
        most = lora.max_num_adapters_per_replica if lora is not None else 1

        async def load(model_id: str) -> _Adapter:
            return await self._loaded_adapter(model_id)

        self._load = multiplexed(max_num_models_per_replica=most)(load)

    async def start(self) -> None:
        """Loads the model."""
        await self.engine.start()

    async def check_health(self) -> None:
        """Raises if the engine cannot serve requests."""
        await self.engine.check_health()

    async def llm_config(self) -> LLMConfig:
        """What it serves."""
        return self._llm_config

    def __del__(self) -> None:
        engine = self.__dict__.get("engine")
        if engine is not None:
            engine.close()

    # ------------------------------------------------------------ requests

    async def completions(
        self, request: CompletionRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[str | CompletionResponse | ErrorResponse, None]:
        """Continues prompts."""
        try:
            refuse(request)
            prompts = self._prompts(request.prompt, "prompt")
            asked = request.max_tokens if "max_tokens" in request.model_fields_set else None
            default = CompletionRequest.model_fields["max_tokens"].default
            job, adapter = await self._job(request, prompts, asked, default, request.logprobs)
        except OpenAIHTTPException as error:
            yield error.response()
            return
        answer = CompletionAnswer(request, *self._answered(request, job))
        async for item in self._answer(answer, request, job, adapter):
            yield item

    async def chat(
        self, request: ChatCompletionRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[str | ChatCompletionResponse | ErrorResponse, None]:
        """Answers the last message."""
        try:
            refuse(request)
            prompts = [self._chat_prompt(request)]
            asked = request.max_completion_tokens or request.max_tokens
            logprobs = (request.top_logprobs or 0) if request.logprobs else None
            job, adapter = await self._job(request, prompts, asked, None, logprobs)
        except OpenAIHTTPException as error:
            yield error.response()
            return
        answer = ChatAnswer(request, *self._answered(request, job))
        async for item in self._answer(answer, request, job, adapter):
            yield item

    async def embeddings(
        self, request: EmbeddingRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[EmbeddingResponse | ErrorResponse, None]:
        """Vectors of texts. Adapters are not used."""
        try:
            refuse(request)
            if self._model_of(request) != self._llm_config.model_id:
                raise OpenAIHTTPException(400, "Embeddings are made without adapters.", param="model")
            inputs = self._prompts(request.input, "input")
            for tokens in inputs:
                self._room(tokens, "input", 0)
            try:
                vectors = await self.engine.embed(inputs)
            except ValueError as error:
                raise OpenAIHTTPException(400, str(error)) from error
        except OpenAIHTTPException as error:
            yield error.response()
            return
        data = [
            EmbeddingData(index=index, embedding=_encoded(vector, request.encoding_format))
            for index, vector in enumerate(vectors)
        ]
        count = sum(map(len, inputs))
        usage = UsageInfo(prompt_tokens=count, total_tokens=count)
        yield EmbeddingResponse(
            id=f"embd-{request.request_id}", model=self._name_of(request), data=data, usage=usage
        )

    async def _answer(
        self, answer: Answer, request: Any, job: Job, adapter: _Adapter | None
    ) -> AsyncGenerator[Any, None]:
        """Yields the answer. Has `adapter` as long as the engine uses it."""
        async with contextlib.aclosing(generate(self.engine, self._decode, job)) as pieces:
            if not request.stream:
                yield await answer.whole(pieces)
                return
            async for packet in answer.events(pieces, request.includes_usage):
                yield packet

    def _answered(self, request: Any, job: Job) -> tuple[str, Any, int, int]:
        count = sum(map(len, job.prompts))
        return self._name_of(request), self.engine.tokenizer, count, len(job.prompts) * job.n

    def _decode(self, tokens: list[int]) -> str:
        return str(
            self.engine.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    # ------------------------------------------------------------ what is asked

    async def _job(
        self,
        request: Any,
        prompts: list[list[int]],
        asked: int | None,
        default: int | None,
        logprobs: int | None,
    ) -> tuple[Job, _Adapter | None]:
        adapter = await self._adapter_of(request)
        samplings = [
            Sampling(
                max_tokens=self._length(tokens, asked, default),
                temperature=1.0 if request.temperature is None else request.temperature,
                top_p=1.0 if request.top_p is None else request.top_p,
                top_k=max(0, request.top_k or 0),
                min_p=request.min_p or 0.0,
                presence_penalty=request.presence_penalty,
                frequency_penalty=request.frequency_penalty,
                seed=request.seed,
                logprobs=logprobs,
                stop_token_ids=frozenset(request.stop_token_ids or ()),
                ignore_eos=request.ignore_eos,
            )
            for tokens in prompts
        ]
        name = None if adapter is None else adapter.name
        return Job(
            prompts=prompts, samplings=samplings, n=request.n, stops=request.stops, adapter=name
        ), adapter

    def _length(self, tokens: Sequence[int], asked: int | None, default: int | None) -> int:
        room = self._room(tokens, "max_tokens", asked or 1)
        if asked is not None:
            return asked
        if room is None:
            return default or MAX_TOKENS
        return room if default is None else min(default, room)

    def _room(self, tokens: Sequence[int], param: str, needed: int) -> int | None:
        """How many more tokens the model has room for; None: unknown.

        Raises:
            OpenAIHTTPException: fewer than are needed.
        """
        most = self.engine.max_model_len
        if most is None:
            return None
        if len(tokens) + needed > most:
            raise OpenAIHTTPException(
                400,
                f"This model's maximum context length is {most} tokens, but the request needs "
                f"{len(tokens) + needed} ({len(tokens)} in the prompt, {needed} to generate).",
                param=param,
            )
        return most - len(tokens)

    def _prompts(self, given: Any, param: str) -> list[list[int]]:
        """Tokens of each text. Texts may be given as tokens."""
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            given = [given]
        if not given:
            raise OpenAIHTTPException(400, f"'{param}' is empty.", param=param)
        return [self._tokens(each, param) for each in given]

    def _tokens(self, given: str | list[int], param: str) -> list[int]:
        tokenizer = self.engine.tokenizer
        tokens = list(tokenizer(given)["input_ids"]) if isinstance(given, str) else given
        if not tokens:
            raise OpenAIHTTPException(400, f"'{param}' has an empty text.", param=param)
        if min(tokens) < 0 or max(tokens) >= len(tokenizer):
            raise OpenAIHTTPException(
                400, f"'{param}' has tokens that are not in the model's vocabulary.", param=param
            )
        return tokens

    def _chat_prompt(self, request: ChatCompletionRequest) -> list[int]:
        from runtime.data.llm.transformers_model import render_chat

        tokenizer = self.engine.tokenizer
        if getattr(tokenizer, "chat_template", None) is None:
            raise OpenAIHTTPException(
                400, "The model has no chat template: use /v1/completions.", param="messages"
            )
        options = request.chat_template_kwargs or {}
        try:
            prompt = render_chat(tokenizer, [_plain(message) for message in request.messages], options)
        except OpenAIHTTPException:
            raise
        except Exception as error:  # templates raise what they like
            raise OpenAIHTTPException(
                400, f"The chat template refused the messages: {error}", param="messages"
            ) from error
        tokens = list(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        if not tokens:
            raise OpenAIHTTPException(400, "'messages' have no text.", param="messages")
        return tokens

    # ------------------------------------------------------------ adapters

    def _name_of(self, request: Any) -> str:
        return request.model or self._llm_config.model_id

    def _model_of(self, request: Any) -> str:
        """The id of the model or adapter that the request is for.

        Raises:
            OpenAIHTTPException: 404; it is another model's.
        """
        model = context.get_multiplexed_model_id() or self._name_of(request)
        if model.partition(":")[0] != self._llm_config.model_id:
            raise unknown_model(model)
        return str(model)

    async def _adapter_of(self, request: Any) -> _Adapter | None:
        model = self._model_of(request)
        if ":" not in model:
            return None
        try:
            return await self._load(model)  # type: ignore[no-any-return]
        except FileNotFoundError as error:
            raise unknown_model(model) from error

    async def _loaded_adapter(self, model_id: str) -> _Adapter:
        lora = self._llm_config.lora_config
        if lora is None or lora.dynamic_lora_loading_path is None:
            raise FileNotFoundError(
                f"{self._llm_config.model_id} has no adapters: its LLMConfig has no lora_config."
            )
        adapter = model_id.partition(":")[2]
        async with asyncio.timeout(lora.download_timeout_s):
            folder = await asyncio.to_thread(_sources.adapter_folder, lora.dynamic_lora_loading_path, adapter)
            path = await asyncio.wrap_future(_sources.fetching(folder, lora.max_download_tries))
        name = f"adapter{next(self._numbers)}"  # unique: an older one of the same name may still be in use
        await self.engine.load_lora(name, path)
        return _Adapter(self.engine, name)

    # ------------------------------------------------------------ deployment

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> dict[str, Any]:
        """Options of `serve.deployment` for a model: those of its `deployment_config`, with the resources that the
        model needs."""
        options = copy.deepcopy(llm_config.deployment_config)
        options.setdefault("max_ongoing_requests", MAX_ONGOING_REQUESTS)
        if options.get("num_replicas") == "auto":
            options.setdefault("autoscaling_config", {})
        scaling = options.get("autoscaling_config")
        if isinstance(scaling, dict):
            scaling.setdefault("target_ongoing_requests", max(1, options["max_ongoing_requests"] // 2))
        actor = dict(options.get("ray_actor_options") or {})
        resources = dict(actor.get("resources") or {})
        actor["num_cpus"] = actor.get("num_cpus", 1)
        for name, amount in llm_config.resources().items():
            if name == "CPU":
                actor["num_cpus"] += amount
            elif name == "GPU":
                actor.setdefault("num_gpus", amount)
            elif name == "memory":
                actor["memory"] = actor.get("memory", 0) + amount
            else:
                resources[name] = resources.get(name, 0) + amount
        if resources:
            actor["resources"] = resources
        if llm_config.accelerator_type is not None:
            actor.setdefault("accelerator_type", llm_config.accelerator_type)
        if llm_config.runtime_env:
            actor["runtime_env"] = {**actor.get("runtime_env", {}), **llm_config.runtime_env}
        options["ray_actor_options"] = actor
        return options


def _engine_class(llm_config: LLMConfig) -> type[Engine]:
    if llm_config.llm_engine == "vLLM":
        from runtime.serve.llm._engine.vllm_engine import VllmEngine

        return VllmEngine
    from runtime.serve.llm._engine.transformers_engine import TransformersEngine

    return TransformersEngine


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content as one text."""
    if not isinstance(message.get("role"), str):
        raise OpenAIHTTPException(400, "Every message needs a 'role'.", param="messages")
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": content or ""}
    texts = []
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise OpenAIHTTPException(
                400, f"The model takes text only, not a part of type {kind!r}.", param="messages"
            )
        texts.append(part["text"])
    return {**message, "content": "".join(texts)}


def _encoded(vector: Any, form: str) -> list[float] | str:
    if form == "float":
        return [float(value) for value in vector]
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
