"""A running batch: requests join and leave it between two steps, and each step makes one token for every one.

The cache of keys and values is padded on the left, so that all rows end at the same place:

    tokens        the cat sat | on      mask  1 1 1 1
                      .  hello | there         0 0 1 1
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.data.llm.transformers_model import TransformersModel
from runtime.serve.llm._engine.interface import Token
from runtime.serve.llm._engine.sampling import Chooser, choose


@dataclass(eq=False, slots=True)
class Row:
    """A request in a batch.

    Attributes:
        key: whatever the caller knows it by.
        last: the token that was generated last.
    """

    key: Any
    prompt: Sequence[int]
    chooser: Chooser
    last: int = -1


class Batch:
    """The rows that run together. Blocks its thread; only one thread may use it, and the model, at a time."""

    def __init__(self, loaded: TransformersModel) -> None:
        self._loaded = loaded
        self._torch = loaded.torch
        names = inspect.signature(loaded.model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._takes_positions = "position_ids" in names
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in names else {}
        self._cache: Any = None
        self._mask: Any = None  # of shape (rows, tokens in the cache)
        self.rows: list[Row] = []

    def join(self, rows: Sequence[Row]) -> list[tuple[Row, Token]]:
        """Reads the prompts of new rows. The first token of each."""
        inputs = self._loaded.padded([row.prompt for row in rows], on_the_left=True)
        mask = inputs["attention_mask"]
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = self._new_cache()
        logits = self._forward(inputs["input_ids"], mask, positions, cache)
        if self.rows:
            width = max(self._mask.shape[1], mask.shape[1])
            cache = self._joined(self._cache, cache, width)
            mask = self._torch.cat([self._widened(self._mask, width), self._widened(mask, width)])
        self._cache, self._mask = cache, mask
        self.rows.extend(rows)
        return self._chosen(rows, logits)

    def step(self) -> list[tuple[Row, Token]]:
        """The next token of each row."""
        torch = self._torch
        ids = torch.tensor([[row.last] for row in self.rows], device=self._loaded.device)
        positions = self._mask.sum(-1, keepdim=True)
        self._mask = torch.cat([self._mask, self._mask.new_ones((len(self.rows), 1))], dim=1)
        logits = self._forward(ids, self._mask, positions, self._cache)
        return self._chosen(self.rows, logits)

    def leave(self, rows: Collection[Row]) -> None:
        """Removes rows, and the padding that only they needed."""
        kept = [place for place, row in enumerate(self.rows) if row not in rows]
        if len(kept) == len(self.rows):
            return
        self.rows = [self.rows[place] for place in kept]
        if not kept:
            self._cache = self._mask = None
            return
        places = self._torch.tensor(kept, device=self._loaded.device)
        mask = self._mask[places]
        padding = mask.shape[1] - int(mask.sum(-1).max())
        cache = self._new_cache()
        for number, layer in enumerate(self._cache.layers):
            cache.update(layer.keys[places, :, padding:], layer.values[places, :, padding:], number)
        self._cache, self._mask = cache, mask[:, padding:]

    def _forward(self, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
        given: dict[str, Any] = {self._cache_name: cache, "use_cache": True, **self._last_only}
        if self._takes_positions:
            given["position_ids"] = positions
        with self._torch.inference_mode():
            return self._loaded.model(input_ids=ids, attention_mask=mask, **given).logits[:, -1]

    def _chosen(self, rows: Sequence[Row], logits: Any) -> list[tuple[Row, Token]]:
        with self._torch.inference_mode():
            tokens = choose([row.chooser for row in rows], logits)
        for row, token in zip(rows, tokens, strict=True):
            row.last = token.id
        return list(zip(rows, tokens, strict=True))

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        return (
            DynamicCache()
        )  # without a model's settings it keeps all tokens of layers with a sliding window, too

    def _joined(self, one: Any, other: Any, width: int) -> Any:
        cache = self._new_cache()
        for number, (first, second) in enumerate(zip(one.layers, other.layers, strict=True)):
            keys, values = (
                self._torch.cat([self._widened(before, width, -2), self._widened(after, width, -2)])
                for before, after in ((first.keys, second.keys), (first.values, second.values))
            )
            cache.update(keys, values, number)
        return cache

    def _widened(self, tensor: Any, width: int, dim: int = -1) -> Any:
        """Zeros in front, up to the width in the dimension."""
        missing = width - tensor.shape[dim]
        if not missing:
            return tensor
        shape = list(tensor.shape)
        shape[dim] = missing
        return self._torch.cat([tensor.new_zeros(shape), tensor], dim=dim)


def check_cache(loaded: TransformersModel) -> None:
    """Checks that the model can run in a batch that rows join and leave.

    Raises:
        ValueError: it does not keep keys and values of each token.
    """
    batch = Batch(loaded)
    cache = batch._new_cache()
    ids = loaded.torch.tensor([[loaded.pad, loaded.pad]], device=loaded.device)
    try:
        batch._forward(
            ids, loaded.torch.ones_like(ids), loaded.torch.tensor([[0, 1]], device=loaded.device), cache
        )
        kept = {tuple(layer.keys.shape[::2]) for layer in cache.layers}
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{_refusal(loaded)} ({error}).") from error
    if kept != {(1, 2)}:
        raise ValueError(f"{_refusal(loaded)}.")


def _refusal(loaded: TransformersModel) -> str:
    return (
        f"{type(loaded.model).__name__} does not keep keys and values of each token, which llm_engine='transformers' "
        "needs: serve it with llm_engine='vLLM'"
    )
