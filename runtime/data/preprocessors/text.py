"""Texts as tokens and vectors."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.data._block import tensor
from runtime.data.aggregate import AggregateFnV2
from runtime.data.preprocessor import Preprocessor, get_column, set_column
from runtime.data.preprocessors.columns import ColumnPreprocessor, numbers_of

Tokenize = Callable[[str], list[str]]


def simple_split_tokenizer(value: str) -> list[str]:
    """The parts of a text between single spaces."""
    return value.split(" ")


def simple_hash(value: object, num_features: int) -> int:
    """A number below num_features, the same for equal texts in every process."""
    digest = hashlib.sha256(str(value).encode()).hexdigest()
    return int(digest, 16) % num_features


class Tokenizer(ColumnPreprocessor):
    """Replaces texts by lists of tokens. Needs no fitting.

    Args:
        columns: texts.
        tokenization_fn: makes tokens of a text; by default the parts between spaces.
        output_columns: where the results go; the same columns by default.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        tokenization_fn: Tokenize | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.tokenization_fn = tokenization_fn or simple_split_tokenizer

    def _transform_column(self, name: str, column: Any) -> Any:
        return pa.array(
            [None if text is None else list(self.tokenization_fn(text)) for text in column.to_pylist()]
        )


class HashingVectorizer(ColumnPreprocessor):
    """Replaces texts by vectors of token counts, where a token's place is its hash. Needs no fitting.

    Args:
        columns: texts.
        num_features: the vectors' length.
        tokenization_fn: makes tokens of a text; by default the parts between spaces.
        output_columns: where the results go; the same columns by default.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        num_features: int,
        tokenization_fn: Tokenize | None = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.num_features = num_features
        self.tokenization_fn = tokenization_fn or simple_split_tokenizer

    def _transform_column(self, name: str, column: Any) -> Any:
        places: dict[str, int] = {}
        vectors = np.zeros((len(column), self.num_features), np.int64)
        for vector, text in zip(vectors, column.to_pylist(), strict=True):
            for token in self.tokenization_fn(text) if text is not None else ():
                if token not in places:
                    places[token] = simple_hash(token, self.num_features)
                vector[places[token]] += 1
        return tensor.from_numpy(vectors)


class _TokenCounts(AggregateFnV2[Any, Any]):
    """How often each token is in a column."""

    def __init__(self, on: str, tokenize: Tokenize) -> None:
        super().__init__(f"token_counts({on})", Counter, on=on, ignore_nulls=True)
        self._tokenize = tokenize

    def aggregate_block(self, block: pa.Table) -> Counter[str]:
        assert self._on is not None
        texts = block.column(self._on).drop_null().to_pylist()
        return Counter(token for text in texts for token in self._tokenize(text))

    def combine(self, current_accumulator: Counter[str], new: Counter[str]) -> Counter[str]:
        return current_accumulator + new

    def finalize(self, accumulator: Counter[str]) -> dict[str, list[Any]]:
        return {"tokens": list(accumulator), "counts": list(accumulator.values())}


class CountVectorizer(ColumnPreprocessor):
    """Replaces texts by vectors of how often each learnt token is in them, the most frequent token first.

    Args:
        columns: texts.
        tokenization_fn: makes tokens of a text; by default the parts between spaces.
        max_features: how many of the most frequent tokens are learnt; None for all.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(
        self,
        columns: Sequence[str],
        tokenization_fn: Tokenize | None = None,
        max_features: int | None = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.tokenization_fn = tokenization_fn or simple_split_tokenizer
        self.max_features = max_features

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        return [_TokenCounts(name, self.tokenization_fn) for name in self.columns]

    def _learn(self, results: dict[str, Any]) -> dict[str, Any]:
        stats = {}
        for name in self.columns:
            found = results[f"token_counts({name})"] or {"tokens": [], "counts": []}
            pairs = sorted(
                zip(found["tokens"], found["counts"], strict=True), key=lambda pair: (-pair[1], pair[0])
            )
            stats[f"token_counts({name})"] = dict(pairs[: self.max_features])
        return stats

    def _transform_column(self, name: str, column: Any) -> Any:
        places = {token: place for place, token in enumerate(self.stats_[f"token_counts({name})"])}
        vectors = np.zeros((len(column), len(places)), np.int64)
        for vector, text in zip(vectors, column.to_pylist(), strict=True):
            for token in self.tokenization_fn(text) if text is not None else ():
                if token in places:
                    vector[places[token]] += 1
        return tensor.from_numpy(vectors)


class FeatureHasher(Preprocessor):
    """Joins columns of token counts to one of vectors, where a column's place is its name's hash. Needs no fitting.

    Args:
        columns: numbers of tokens, one column for each token.
        num_features: the vectors' length.
        output_column: of the vectors; the other columns stay.
    """

    _is_fittable = False

    def __init__(self, columns: Sequence[str], num_features: int, output_column: str) -> None:
        self.columns = list(columns)
        self.num_features = num_features
        self.output_column = output_column

    def get_output_columns(self) -> list[str]:
        """The column of vectors."""
        return [self.output_column]

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        vectors = np.zeros((table.num_rows, self.num_features))
        for name in self.columns:
            values, _ = numbers_of(get_column(table, name))
            vectors[:, simple_hash(name, self.num_features)] += np.nan_to_num(values)
        return set_column(table, self.output_column, tensor.from_numpy(vectors))
