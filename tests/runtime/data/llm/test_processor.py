"""Processors with an engine in actors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from runtime.data.llm import EngineProcessorConfig, Output, Request, build_processor
from tests.under_test import ray


class Counter:
    """Counts up from the prompt, one number for each token asked for. Its lock belongs to one event loop."""

    def __init__(self, model: str, task: str, options: Any) -> None:
        self._step = options["step"]
        self._lock = asyncio.Lock()

    async def run(self, requests: Sequence[Request]) -> list[Output | BaseException]:
        async with self._lock:
            await asyncio.sleep(0.001)
            return [self._one(each) for each in requests]

    def _one(self, request: Request) -> Output | BaseException:
        begin = int(request.prompt or 0)
        if begin == 13:
            return RuntimeError("13 is not lucky")
        numbers = tuple(range(begin, begin + self._step * request.params["max_tokens"], self._step))
        return Output(prompt_tokens=(begin,), text=" ".join(map(str, numbers)), tokens=numbers)


def config(**settings: Any) -> EngineProcessorConfig:
    return EngineProcessorConfig(
        model_source="m",
        engine=Counter,
        engine_kwargs={"step": 10},
        batch_size=3,
        chat_template_stage=False,
        tokenize_stage=False,
        detokenize_stage=False,
        **settings,
    )


def prompt(row: dict[str, Any]) -> dict[str, Any]:
    return {"prompt": str(row["id"]), "sampling_params": {"max_tokens": 1 + row["id"] % 3}, "id": row["id"]}


def test_an_engine_over_many_blocks(session: Any) -> None:
    processor = build_processor(
        config(), preprocess=prompt, postprocess=lambda row: {"id": row["id"], "text": row["generated_text"]}
    )
    rows = processor(ray.data.range(12, override_num_blocks=4)).take_all()
    assert rows == [{"id": n, "text": " ".join(str(n + 10 * i) for i in range(1 + n % 3))} for n in range(12)]


def test_failed_rows_go_on_if_asked(session: Any) -> None:
    class Pick:
        def __init__(self, column: str) -> None:
            self.column = column

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return {"error": row[self.column]}

    processor = build_processor(
        config(should_continue_on_error=True),
        preprocess=prompt,
        postprocess=Pick,
        postprocess_map_kwargs={"fn_constructor_args": ("__inference_error__",), "num_cpus": 0},
    )
    for _ in range(2):  # a processor can be applied again
        errors = [row["error"] for row in processor(ray.data.range(15)).take_all()]
        assert errors == [""] * 13 + ["RuntimeError: 13 is not lucky", ""]


def test_a_failed_row_names_its_reason(session: Any) -> None:
    with pytest.raises(Exception, match="13 is not lucky"):
        build_processor(config(), preprocess=prompt)(ray.data.range(15)).take_all()
