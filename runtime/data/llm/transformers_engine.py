"""Models of the `transformers` library: for small models, CPUs and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.data.llm.engines import Output, Request, TaskType, grouped
from runtime.data.llm.transformers_model import TransformersModel

_SAMPLING = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
}
_IGNORED = frozenset({"detokenize", "seed"})
_MAX_TOKENS = 16  # vLLM's default


class TransformersEngine:
    """Runs requests with equal parameters as one padded batch.

    `options` go to `from_pretrained`. Sampling parameters have vLLM's names; `temperature` 0 takes the likeliest token,
    `seed` seeds the batch.
    """

    def __init__(self, model: str, task: TaskType, options: Mapping[str, Any]) -> None:
        self._task = task
        user = "TransformersEngineProcessorConfig"
        self._loaded = TransformersModel(model, task == "generate", options, user)
        self._turn = asyncio.Lock()

    async def run(self, requests: Sequence[Request]) -> Sequence[Output | BaseException]:
        """An output or an error for each request."""
        outputs: list[Output | BaseException] = [RuntimeError("not run")] * len(requests)
        async with self._turn:  # one batch at a time has all threads
            for places in grouped(requests).values():
                batch = [requests[place] for place in places]
                made: Sequence[Output | BaseException]
                try:
                    made = await asyncio.to_thread(self._batch, batch)
                except Exception as error:
                    made = [error] * len(batch)
                for place, output in zip(places, made, strict=True):
                    outputs[place] = output
        return outputs

    def _batch(self, requests: Sequence[Request]) -> list[Output]:
        torch, loaded = self._loaded.torch, self._loaded
        prompts = [self._tokens(request) for request in requests]
        if self._task == "embed":
            vectors = loaded.embeddings(prompts)
            return [
                Output(prompt_tokens=tuple(prompt), embeddings=vector)
                for prompt, vector in zip(prompts, vectors, strict=True)
            ]
        inputs = loaded.padded(prompts, on_the_left=True)
        width = inputs["input_ids"].shape[1]
        options, seed = generation_options(requests[0].params)
        with torch.inference_mode():
            if seed is not None:
                torch.manual_seed(seed)
            made = loaded.model.generate(**inputs, **options, pad_token_id=loaded.pad)[:, width:].tolist()
        return [self._output(prompt, tokens) for prompt, tokens in zip(prompts, made, strict=True)]

    def _tokens(self, request: Request) -> list[int]:
        if request.model is not None or request.images is not None:
            raise ValueError("the engine takes text only, and no adapters: leave `model` and `image` out.")
        tokens = (
            self._loaded.tokenizer(request.prompt)["input_ids"] if request.tokens is None else request.tokens
        )
        if not tokens:
            raise ValueError("the prompt is empty.")
        return list(tokens)

    def _output(self, prompt: list[int], tokens: list[int]) -> Output:
        ends = self._loaded.ends
        length = next((place + 1 for place, token in enumerate(tokens) if token in ends), len(tokens))
        text = self._loaded.tokenizer.decode(tokens[:length], skip_special_tokens=True)
        return Output(prompt_tokens=tuple(prompt), text=text, tokens=tuple(tokens[:length]))


def generation_options(params: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Options of `generate`, and the seed, for sampling parameters.

    Raises:
        ValueError: a parameter is not known here.
    """
    unknown = sorted(name for name in params if name not in _SAMPLING and name not in _IGNORED)
    if unknown:
        raise ValueError(
            f"sampling_params: {', '.join(unknown)} is not known here; known are {', '.join(sorted(_SAMPLING))}, seed."
        )
    options = {
        _SAMPLING[name]: value for name, value in params.items() if name in _SAMPLING and value is not None
    }
    options.setdefault("max_new_tokens", _MAX_TOKENS)
    if options.get("temperature", 1.0) == 0:
        del options["temperature"]
        return {**options, "do_sample": False}, None
    return {**options, "do_sample": True}, params.get("seed")
