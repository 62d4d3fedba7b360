"""What happens to the rows in each stage.

Between stages a row is one Python object in the only column: messages and parameters keep their keys and types, which
a column of Arrow structs would make the same for all rows.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from runtime.data.llm.engines import Engine, Output, Request
from runtime.data.llm.transformers_model import render_chat

if TYPE_CHECKING:
    import pyarrow as pa


COLUMN = "__data"
ERROR = "__inference_error__"

Row = dict[str, Any]


class Carried:
    """A row on its way between stages."""

    __slots__ = ("row",)

    def __init__(self, row: Row) -> None:
        self.row = row


def packed(fn: Callable[[Row], Row] | None, row: Row) -> Row:
    """The row that the user's function makes, as one object."""
    made = row if fn is None else fn(row)
    if not isinstance(made, Mapping):
        raise TypeError(f"preprocess must return a dict, not {type(made).__name__}.")
    return {COLUMN: Carried(dict(made))}


def unpacked(fn: Callable[[Row], Row] | None, row: Row) -> Row:
    """The row that the user's function makes of what the stages made."""
    carried: Row = row[COLUMN].row
    return carried if fn is None else fn(carried)


class Packed:
    """`packed` with a class, which is constructed once in each actor."""

    def __init__(self, kind: type, *args: Any) -> None:
        self._fn = kind(*args)

    def __call__(self, row: Row) -> Row:
        return packed(self._fn, row)


class Unpacked(Packed):
    """`unpacked` with a class, which is constructed once in each actor."""

    def __call__(self, row: Row) -> Row:
        return unpacked(self._fn, row)


class RowStage(Protocol):
    """The rows' part of a stage."""

    async def __call__(self, rows: list[Row]) -> None:
        """Adds columns to the rows."""


class Rows:
    """The function of `map_batches`: a stage over batches of carried rows."""

    def __init__(self, name: str, make: Callable[[], RowStage]) -> None:
        self._name = name
        self._stage = make()

    async def __call__(self, batch: pa.Table) -> pa.Table:
        import pyarrow as pa

        from runtime.data._block.objects import from_objects

        rows: list[Row] = [carried.row for carried in batch.column(COLUMN).to_pylist()]
        await self._stage(rows)
        return pa.table({COLUMN: from_objects([Carried(row) for row in rows])})


def _needed(row: Row, column: str, stage: str) -> Any:
    if row.get(column) is None:
        raise ValueError(f"{stage} needs the column {column!r}: preprocess made {', '.join(row) or 'none'}.")
    return row[column]


def _tokenizer(model: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ImportError(
            "chat templates and tokens need the package transformers: pip install 'clusterctl[llm]', or switch the "
            "stages off (chat_template_stage=False, tokenize_stage=False, detokenize_stage=False)."
        ) from error
    return AutoTokenizer.from_pretrained(model)


class ChatTemplate:
    """`prompt` from `messages`."""

    def __init__(self, model: str, template: str | None, variables: Mapping[str, Any]) -> None:
        self._tokenizer = _tokenizer(model)
        self._options = {"chat_template": template, **variables} if template else dict(variables)

    async def __call__(self, rows: list[Row]) -> None:
        for row in rows:
            messages = _needed(row, "messages", "ChatTemplateStage")
            row["prompt"] = render_chat(self._tokenizer, messages, self._options)


class Tokenize:
    """`tokenized_prompt` from `prompt`."""

    def __init__(self, model: str) -> None:
        self._tokenizer = _tokenizer(model)

    async def __call__(self, rows: list[Row]) -> None:
        if not rows:
            return
        texts = [_needed(row, "prompt", "TokenizeStage") for row in rows]
        for row, tokens in zip(rows, self._tokenizer(texts)["input_ids"], strict=True):
            row["tokenized_prompt"] = tokens


class Detokenize:
    """`generated_text` from `generated_tokens`."""

    def __init__(self, model: str) -> None:
        self._tokenizer = _tokenizer(model)

    async def __call__(self, rows: list[Row]) -> None:
        done = [row for row in rows if not row.get(ERROR)]
        texts = self._tokenizer.batch_decode(
            [_needed(row, "generated_tokens", "DetokenizeStage") for row in done], skip_special_tokens=True
        )
        for row, text in zip(done, texts, strict=True):
            row["generated_text"] = text


class Inference:
    """Rows through the engine."""

    def __init__(self, make: Callable[[], Engine], at_a_time: int, goes_on: bool) -> None:
        self._engine = make()
        self._turns = asyncio.Semaphore(at_a_time)
        self._goes_on = goes_on
        self._count = 0

    async def __call__(self, rows: list[Row]) -> None:
        async with self._turns:
            begin = time.perf_counter()
            outputs = await self._engine.run([_request(row) for row in rows])
            seconds = time.perf_counter() - begin
        batch = uuid.uuid4().hex
        for row, output in zip(rows, outputs, strict=True):
            row |= {"request_id": self._count, "batch_uuid": batch, "time_taken_llm": seconds}
            self._count += 1
            if isinstance(output, BaseException):
                if not self._goes_on:
                    raise output
                row[ERROR] = f"{type(output).__name__}: {output}"
                continue
            if self._goes_on:
                row[ERROR] = ""
            row |= _columns(output)


def _request(row: Row) -> Request:
    tokens = row.get("tokenized_prompt")
    if tokens is None and row.get("prompt") is None:
        raise ValueError(
            f"EngineStage needs `prompt` or `tokenized_prompt`: the row has {', '.join(row) or 'none'}."
        )
    return Request(
        prompt=row.get("prompt"),
        tokens=None if tokens is None else tuple(map(int, tokens)),
        params=row.get("sampling_params") or row.get("pooling_params") or {},
        model=row.get("model"),
        images=row.get("image"),
    )


def _columns(output: Output) -> Row:
    columns: Row = {
        "prompt_token_ids": list(output.prompt_tokens),
        "num_input_tokens": len(output.prompt_tokens),
    }
    if output.tokens is not None:
        columns |= {"generated_tokens": list(output.tokens), "num_generated_tokens": len(output.tokens)}
    if output.text is not None:
        columns["generated_text"] = output.text
    if output.embeddings is not None:
        columns["embeddings"] = output.embeddings
    if output.metrics is not None:
        columns["metrics"] = dict(output.metrics)
    return columns
