"""Runs the choices of a request beside each other."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from runtime.serve.llm._engine.interface import Engine, Finish, Sampling, Token
from runtime.serve.llm._text import TextStream

_AHEAD = 64
"""How many pieces a request may be ahead of its reader."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one choice.

    Attributes:
        choice: which one; those of the first prompt come first.
        tokens: that were generated since the last piece, the end token too.
        finish: of the last piece.
    """

    choice: int
    text: str
    tokens: tuple[Token, ...]
    finish: Finish | None


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to generate.

    Attributes:
        prompts: tokens of each.
        samplings: one for each prompt.
        n: choices for each prompt.
        stops: sequences that end a text.
        adapter: of the engine.
    """

    prompts: Sequence[Sequence[int]]
    samplings: Sequence[Sampling]
    n: int = 1
    stops: Sequence[str] = ()
    adapter: str | None = None


async def generate(
    engine: Engine, decode: Callable[[list[int]], str], job: Job
) -> AsyncGenerator[Piece, None]:
    """The pieces of all choices, as they come. Closing the generator ends all of them.

    Raises: what the engine raises.
    """
    pieces: asyncio.Queue[Piece | BaseException] = asyncio.Queue(_AHEAD)

    async def run(choice: int) -> None:
        prompt, number = divmod(choice, job.n)
        sampling = job.samplings[prompt]
        if sampling.seed is not None:  # else all choices were the same
            sampling = dataclasses.replace(sampling, seed=sampling.seed + number)
        try:
            await _run(engine, TextStream(decode, job.stops), job, prompt, sampling, choice, pieces)
        except Exception as error:
            await pieces.put(error)

    left = len(job.prompts) * job.n
    tasks = [asyncio.create_task(run(choice)) for choice in range(left)]
    try:
        while left:
            piece = await pieces.get()
            if isinstance(piece, BaseException):
                raise piece
            left -= piece.finish is not None
            yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(
    engine: Engine,
    text: TextStream,
    job: Job,
    prompt: int,
    sampling: Sampling,
    choice: int,
    pieces: asyncio.Queue[Piece | BaseException],
) -> None:
    pending: list[Token] = []
    async with contextlib.aclosing(engine.generate(job.prompts[prompt], sampling, job.adapter)) as tokens:
        async for token in tokens:
            pending.append(token)
            made = "" if token.finish == "stop" else text.push(token.id)
            if token.finish is not None:
                made += text.finish()
            finish: Finish | None = "stop" if text.stopped is not None else token.finish
            if made or finish is not None:
                await pieces.put(Piece(choice, made, tuple(pending), finish))
                pending = []
            if finish is not None:
                return
    raise RuntimeError("The engine ended an answer without a finish reason.")
