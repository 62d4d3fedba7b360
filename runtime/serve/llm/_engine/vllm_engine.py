"""Models in vLLM. This has not been run yet: it needs a GPU and the package vllm."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from runtime.data.llm.vllm_engine import start_vllm
from runtime.serve.llm._engine.interface import Finish, Sampling, Token

if TYPE_CHECKING:
    from runtime.serve.llm.config import LLMConfig


class VllmEngine:
    """See `interface.Engine`. `engine_kwargs` are vLLM's engine arguments."""

    def __init__(self, llm_config: LLMConfig) -> None:
        self._config = llm_config
        self._numbers = itertools.count(1)  # vLLM knows adapters by positive integers
        self._adapters: dict[str, Any] = {}
        self._removals: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._vllm: Any = None
        self._engine: Any = None
        self.tokenizer: Any = None
        self.max_model_len: int | None = None

    async def start(self) -> None:
        """See `interface.Engine`."""
        self._loop = asyncio.get_running_loop()
        loading = self._config.model_loading_config
        source = await asyncio.to_thread(loading.local_source)
        options = {"tokenizer": loading.tokenizer_source, **self._config.engine_kwargs}
        if self._config.lora_config is not None:
            options = {
                "enable_lora": True,
                "max_cpu_loras": self._config.lora_config.max_num_adapters_per_replica,
                **options,
            }
        # In a thread: loading takes minutes. vLLM then starts its output handler with the first request, on this loop.
        self._vllm, self._engine = await asyncio.to_thread(start_vllm, source, options, "llm_engine='vLLM'")
        from transformers import AutoTokenizer

        self.tokenizer = await asyncio.to_thread(
            AutoTokenizer.from_pretrained, loading.tokenizer_source or source
        )
        self.max_model_len = self._engine.model_config.max_model_len

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, adapter: str | None = None
    ) -> AsyncGenerator[Token, None]:
        """See `interface.Engine`."""
        name = uuid.uuid4().hex
        stream = self._engine.generate(
            {"prompt_token_ids": list(prompt)},
            self._parameters(sampling),
            name,
            lora_request=None if adapter is None else self._adapters[adapter],
        )
        async with contextlib.aclosing(stream):  # closing it aborts the request
            async for output in stream:
                made = output.outputs[0]
                last = len(made.token_ids) - 1
                for place, token in enumerate(made.token_ids):
                    finish = _finish(made.finish_reason) if place == last else None
                    logprobs = made.logprobs[place] if made.logprobs else None
                    yield _token(token, logprobs, sampling.logprobs, finish)

    def _parameters(self, sampling: Sampling) -> Any:
        from vllm.sampling_params import RequestOutputKind

        return self._vllm.SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            seed=sampling.seed,
            logprobs=sampling.logprobs,
            stop_token_ids=sorted(sampling.stop_token_ids),
            ignore_eos=sampling.ignore_eos,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[Any]:
        """See `interface.Engine`. The model must be one for pooling."""
        return list(await asyncio.gather(*map(self._embedding, prompts)))

    async def _embedding(self, prompt: Sequence[int]) -> Any:
        params = self._vllm.PoolingParams(task="embed")
        last: Any = None
        async for output in self._engine.encode({"prompt_token_ids": list(prompt)}, params, uuid.uuid4().hex):
            last = output
        if last is None:
            raise RuntimeError("vLLM ended a request without an output.")
        return last.outputs.data.float().cpu().numpy()

    async def load_lora(self, name: str, path: str) -> None:
        """See `interface.Engine`."""
        from vllm.lora.request import LoRARequest

        request = LoRARequest(name, next(self._numbers), path)
        if not await self._engine.add_lora(request):
            raise ValueError(f"vLLM did not load the adapter in {path}.")
        self._adapters[name] = request

    def unload_lora(self, name: str) -> None:
        """See `interface.Engine`."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._remove, name)

    def _remove(self, name: str) -> None:
        request = self._adapters.pop(name)
        task = asyncio.ensure_future(self._engine.remove_lora(request.lora_int_id))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def check_health(self) -> None:
        """Raises vLLM's error, if its engine is dead."""
        await self._engine.check_health()

    def close(self) -> None:
        """See `interface.Engine`."""
        if self._engine is not None:
            self._engine.shutdown()


def _finish(reason: str | None) -> Finish | None:
    if reason is None:
        return None
    return "length" if reason == "length" else "stop"


def _token(token: int, logprobs: Any, count: int | None, finish: Finish | None) -> Token:
    """Of vLLM's dict of (token, probability), which has the chosen token besides the likeliest ones."""
    if count is None or logprobs is None:
        return Token(token, finish=finish)
    likeliest = sorted(logprobs.items(), key=lambda item: item[1].logprob, reverse=True)[:count]
    top = tuple((other, float(entry.logprob)) for other, entry in likeliest)
    return Token(token, float(logprobs[token].logprob), top, finish)
