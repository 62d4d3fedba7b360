"""What stages do to rows, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.data.llm import Output, Request, stages
from runtime.data.llm.engines import grouped
from runtime.data.llm.transformers_engine import generation_options


class Engine:
    """Answers with the prompt in capitals; fails where it says so. Counts calls that run at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.seen: list[Request] = []

    async def run(self, requests: Sequence[Request]) -> list[Output | BaseException]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        self.seen += requests
        return [self._one(each) for each in requests]

    def _one(self, request: Request) -> Output | BaseException:
        if request.prompt == "fail":
            return ValueError("it cannot")
        return Output(
            prompt_tokens=request.tokens or (1,),
            text=(request.prompt or "").upper(),
            tokens=(7, 8),
            metrics={"n": 2},
        )


def infer(rows: list[dict[str, Any]], goes_on: bool = False) -> Engine:
    engine = Engine()
    stage = stages.Inference(lambda: engine, 2, goes_on)
    asyncio.run(stage(rows))
    return engine


def test_rows_keep_their_objects_between_stages() -> None:
    given = {"messages": [{"role": "user"}, {"role": "tool", "id": 3}], "f": np.arange(3), "n": None}
    row = stages.packed(None, given)
    back = stages.unpacked(None, row)
    assert back.keys() == given.keys()
    assert back["messages"] == given["messages"]
    with pytest.raises(TypeError, match="preprocess must return a dict, not int"):
        stages.packed(lambda row: 3, {})  # type: ignore[arg-type,return-value]


def test_functions_and_classes_are_bound_to_rows() -> None:
    class Add:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return {"n": row["n"] + self.number}

    row = stages.Packed(Add, 4)({"n": 1})
    assert stages.Unpacked(Add, 10)(row) == {"n": 15}
    assert stages.unpacked(lambda row: {"m": row["n"]}, row) == {"m": 5}


def test_a_batch_of_carried_rows() -> None:
    async def stage(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["b"] = row["a"] * 2

    from runtime.data._block.objects import from_objects

    batch = pa.table({stages.COLUMN: from_objects([stages.Carried({"a": n}) for n in range(3)])})
    made = asyncio.run(stages.Rows("stage", lambda: stage)(batch))
    assert [each.row for each in made.column(stages.COLUMN).to_pylist()] == [
        {"a": n, "b": 2 * n} for n in range(3)
    ]
    assert asyncio.run(stages.Rows("stage", lambda: stage)(batch.slice(0, 0))).num_rows == 0


def test_columns_of_inference() -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "ab", "sampling_params": {"max_tokens": 2}, "kept": 1},
        {"tokenized_prompt": np.array([3, 4, 5])},
    ]
    engine = infer(rows)
    assert engine.seen[0].params == {"max_tokens": 2}
    assert engine.seen[1] == Request(tokens=(3, 4, 5))
    assert rows[0].keys() >= {"batch_uuid", "time_taken_llm", "kept"}
    assert (rows[0]["generated_text"], rows[0]["num_generated_tokens"], rows[0]["metrics"]) == (
        "AB",
        2,
        {"n": 2},
    )
    assert (rows[1]["prompt_token_ids"], rows[1]["num_input_tokens"]) == ([3, 4, 5], 3)
    assert [row["request_id"] for row in rows] == [0, 1]
    assert stages.ERROR not in rows[0]


def test_a_failed_row_ends_the_run_or_goes_on() -> None:
    with pytest.raises(ValueError, match="it cannot"):
        infer([{"prompt": "a"}, {"prompt": "fail"}])
    rows: list[dict[str, Any]] = [{"prompt": "a"}, {"prompt": "fail"}]
    infer(rows, goes_on=True)
    assert [row[stages.ERROR] for row in rows] == ["", "ValueError: it cannot"]
    assert "generated_text" not in rows[1]


def test_a_row_without_a_prompt() -> None:
    with pytest.raises(ValueError, match="needs `prompt` or `tokenized_prompt`: the row has text"):
        infer([{"text": "a"}])


def test_so_many_batches_at_a_time() -> None:
    engine = Engine()
    stage = stages.Inference(lambda: engine, 2, False)

    async def many() -> None:
        await asyncio.gather(*(stage([{"prompt": "a"}]) for _ in range(6)))

    asyncio.run(many())
    assert engine.most == 2
    assert len(engine.seen) == 6


def test_requests_with_equal_parameters_are_a_batch() -> None:
    params: list[dict[str, Any]] = [{"a": 1, "b": 2}, {}, {"b": 2, "a": 1}, {"a": 2}]
    groups = grouped([Request(params=each) for each in params])
    assert sorted(groups.values()) == [[0, 2], [1], [3]]


@pytest.mark.parametrize(
    ("params", "options", "seed"),
    [
        ({}, {"max_new_tokens": 16, "do_sample": True}, None),
        ({"temperature": 0, "max_tokens": 3}, {"max_new_tokens": 3, "do_sample": False}, None),
        (
            {"temperature": 0.5, "top_p": 0.9, "seed": 4, "detokenize": False},
            {"max_new_tokens": 16, "temperature": 0.5, "top_p": 0.9, "do_sample": True},
            4,
        ),
    ],
)
def test_sampling_parameters(params: dict[str, Any], options: dict[str, Any], seed: int | None) -> None:
    assert generation_options(params) == (options, seed)


def test_unknown_sampling_parameters_are_named() -> None:
    with pytest.raises(ValueError, match=r"beams, logits is not known here; known are max_tokens"):
        generation_options({"logits": 1, "beams": 2, "top_k": 3})
