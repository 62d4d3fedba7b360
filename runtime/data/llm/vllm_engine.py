"""Models in vLLM. This has not been run yet: it needs GPUs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.data.llm.engines import Output, Request, TaskType


class VllmEngine:
    """vLLM's asynchronous engine, which batches whatever requests are there. `options` are its engine arguments."""

    def __init__(self, model: str, task: TaskType, options: Mapping[str, Any]) -> None:
        self._task = task
        self._vllm, self._engine = start_vllm(model, options, "vLLMEngineProcessorConfig")

    async def run(self, requests: Sequence[Request]) -> Sequence[Output | BaseException]:
        """An output or an error for each request."""
        return await asyncio.gather(*map(self._one, requests), return_exceptions=True)

    async def _one(self, request: Request) -> Output:
        prompt: dict[str, Any] = (
            {"prompt": request.prompt}
            if request.tokens is None
            else {"prompt_token_ids": list(request.tokens)}
        )
        if request.images is not None:
            prompt["multi_modal_data"] = {"image": request.images}
        if request.model is not None:
            raise ValueError("adapters are not supported: leave the column `model` out.")
        name = uuid.uuid4().hex
        if self._task == "generate":
            stream = self._engine.generate(prompt, self._vllm.SamplingParams(**request.params), name)
        else:
            params = self._vllm.PoolingParams(task=self._task, **request.params)
            stream = self._engine.encode(prompt, params, name)
        last: Any = None
        async for output in stream:  # each has all that was generated so far
            last = output
        if last is None:
            raise RuntimeError("vLLM ended a request without an output.")
        if self._task != "generate":
            return Output(
                prompt_tokens=tuple(last.prompt_token_ids), embeddings=last.outputs.data.float().cpu().numpy()
            )
        made = last.outputs[0]
        return Output(
            prompt_tokens=tuple(last.prompt_token_ids), text=made.text, tokens=tuple(made.token_ids)
        )


def start_vllm(model: str, options: Mapping[str, Any], user: str) -> tuple[Any, Any]:
    """The module vllm, and its asynchronous engine with a model.

    Args:
        model: a name or a folder.
        options: vLLM's engine arguments.
        user: who needs the package, for the error.

    Raises:
        ImportError: vLLM is missing.
    """
    try:
        import vllm
    except ImportError as error:
        raise ImportError(f"{user} needs the package vllm: pip install vllm ({error}).") from error
    return vllm, vllm.AsyncLLMEngine.from_engine_args(vllm.AsyncEngineArgs(model=model, **options))
