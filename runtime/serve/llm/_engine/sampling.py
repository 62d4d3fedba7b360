"""Chooses the next token of each row of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from runtime.serve.llm._engine.interface import Finish, Sampling, Token


class Chooser:
    """The choice of one row's tokens, with its own random numbers: other rows do not change them.

    Args:
        torch: the module.
        ends: the model's end tokens.
    """

    def __init__(self, torch: Any, sampling: Sampling, ends: frozenset[int], device: str) -> None:
        self._torch = torch
        self._ends = sampling.stop_token_ids if sampling.ignore_eos else sampling.stop_token_ids | ends
        self._counts: Counter[int] = Counter()
        self._generator = None
        if sampling.temperature > 0:
            self._generator = torch.Generator(device=device)
            if sampling.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(sampling.seed % 2**63)
        self.sampling = sampling
        self.count = 0

    @property
    def is_plain(self) -> bool:
        """Whether it takes the likeliest token and tells no probabilities."""
        sampling = self.sampling
        return sampling.temperature == 0 and sampling.logprobs is None and not self._has_penalties

    @property
    def _has_penalties(self) -> bool:
        return self.sampling.presence_penalty != 0 or self.sampling.frequency_penalty != 0

    def choose(self, logits: Any) -> Token:
        """The next token, for logits of shape (tokens)."""
        changed = self._penalised(logits) if self._has_penalties else logits
        chosen = int(changed.argmax()) if self._generator is None else self._sampled(changed)
        if self.sampling.logprobs is None:
            return self.token(chosen)
        logprobs = self._torch.log_softmax(logits, dim=-1)
        top: tuple[tuple[int, float], ...] = ()
        if self.sampling.logprobs:
            values, ids = logprobs.topk(min(self.sampling.logprobs, logits.shape[-1]))
            top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return self.token(chosen, float(logprobs[chosen]), top)

    def token(
        self, chosen: int, logprob: float | None = None, top: tuple[tuple[int, float], ...] = ()
    ) -> Token:
        """Counts the chosen token, and says whether it is the last one."""
        self.count += 1
        if self._has_penalties:
            self._counts[chosen] += 1
        finish: Finish | None = None
        if chosen in self._ends:
            finish = "stop"
        elif self.count >= self.sampling.max_tokens:
            finish = "length"
        return Token(chosen, logprob, top, finish)

    def _penalised(self, logits: Any) -> Any:
        if not self._counts:
            return logits
        torch, sampling = self._torch, self.sampling
        ids = torch.tensor(list(self._counts), device=logits.device)
        counts = torch.tensor(list(self._counts.values()), device=logits.device, dtype=logits.dtype)
        changed = logits.clone()
        changed[ids] -= sampling.presence_penalty + sampling.frequency_penalty * counts
        return changed

    def _sampled(self, logits: Any) -> int:
        torch, sampling = self._torch, self.sampling
        probabilities = torch.softmax(logits / sampling.temperature, dim=-1)
        if sampling.top_k or sampling.top_p < 1 or sampling.min_p > 0:
            ordered, ids = probabilities.sort(descending=True)
            if sampling.top_k:
                ordered[sampling.top_k :] = 0
            if sampling.min_p > 0:
                ordered[ordered < sampling.min_p * ordered[0]] = 0
            if sampling.top_p < 1:
                kept = ordered / ordered.sum()
                before = kept.cumsum(-1) - kept  # the token that reaches top_p stays
                ordered[before >= max(sampling.top_p, 1e-9)] = 0  # and of top_p=0 the likeliest
            return int(ids[torch.multinomial(ordered, 1, generator=self._generator)])
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


def choose(choosers: Sequence[Chooser], logits: Any) -> list[Token]:
    """The next token of each row.

    Args:
        logits: of shape (rows, tokens).
    """
    logits = logits.float()
    likeliest = logits.argmax(dim=-1).tolist()
    return [
        chooser.token(likeliest[row]) if chooser.is_plain else chooser.choose(logits[row])
        for row, chooser in enumerate(choosers)
    ]
