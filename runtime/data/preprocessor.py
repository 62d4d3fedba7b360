"""`Preprocessor`: learns from a data set by `fit`, then changes batches by a pure function of what it learnt."""

from __future__ import annotations

import base64
import enum
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pyarrow as pa

from runtime.data._block import batch


class PreprocessorNotFittedException(RuntimeError):
    """A preprocessor that has to be fitted first was asked to transform."""


class Preprocessor:
    """Base of preprocessors.

    A preprocessor of one's own has `_fit(ds)`, which sets `self.stats_`, and one of `_transform_arrow`,
    `_transform_pandas` and `_transform_numpy`, of a batch. Without `_fit` it needs no fitting: set
    `_is_fittable = False`.
    """

    class FitStatus(str, enum.Enum):  # noqa: UP042 - str() of a member is Ray's
        """How far a preprocessor is fitted."""

        NOT_FITTABLE = "NOT_FITTABLE"
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"
        FITTED = "FITTED"

    _is_fittable = True
    stats_: dict[str, Any]
    """What was learnt."""

    def fit_status(self) -> Preprocessor.FitStatus:
        """How far it is fitted."""
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        return Preprocessor.FitStatus.FITTED if self.has_stats() else Preprocessor.FitStatus.NOT_FITTED

    def has_stats(self) -> bool:
        """Whether something was learnt."""
        return "stats_" in vars(self)

    def fit(self, ds: Any) -> Preprocessor:
        """Learns from a data set, which is executed for it; what was learnt before is replaced.

        Returns:
            Itself.
        """
        if self._is_fittable:
            self._fit(ds)
        return self

    def fit_transform(
        self,
        ds: Any,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Any:
        """Learns from a data set, and returns it transformed."""
        self.fit(ds)
        return self.transform(
            ds,
            batch_size=transform_batch_size,
            num_cpus=transform_num_cpus,
            memory=transform_memory,
            concurrency=transform_concurrency,
        )

    def transform(
        self,
        ds: Any,
        *,
        batch_size: int | None = None,
        num_cpus: float | None = None,
        memory: float | None = None,
        concurrency: int | None = None,
    ) -> Any:
        """The data set with each batch transformed.

        Args:
            batch_size: rows of a batch; None for whole blocks.
            num_cpus, memory, concurrency: of the tasks; see `Dataset.map_batches`.

        Raises:
            PreprocessorNotFittedException: it was not fitted.
        """
        self._check_fitted()
        options = {"num_cpus": num_cpus, "memory": memory, "concurrency": concurrency}
        return ds.map_batches(
            self._transform_whole,
            batch_size=batch_size,
            batch_format=self._format(),
            zero_copy_batch=True,
            **{name: value for name, value in options.items() if value is not None},
        )

    def transform_batch(self, data: Any) -> Any:
        """A batch transformed, in the format it came in: a table, a DataFrame or a dict of arrays.

        Raises:
            PreprocessorNotFittedException: it was not fitted.
        """
        self._check_fitted()
        table = batch.from_batch(data)
        result = self._transform_whole(batch.to_batch(table, self._format()))
        if isinstance(data, pa.Table):
            return batch.from_batch(result)
        if isinstance(data, dict):
            return result if isinstance(result, dict) else batch.to_numpy(batch.from_batch(result))
        if type(result) is type(data):
            return result
        frame = batch.to_pandas(batch.from_batch(result))
        if type(frame) is not type(data):
            return type(data)(batch.from_batch(result))
        frame.index = data.index
        return frame

    def _check_fitted(self) -> None:
        if self.fit_status() in (Preprocessor.FitStatus.NOT_FITTED, Preprocessor.FitStatus.PARTIALLY_FITTED):
            raise PreprocessorNotFittedException(f"{self!r} must be fitted first: call fit() with a data set")

    def _format(self) -> str:
        """The format of batches that it is written for."""
        for name in ("arrow", "pandas", "numpy"):
            if getattr(type(self), f"_transform_{name}", None) is not None:
                return "pyarrow" if name == "arrow" else name
        raise NotImplementedError(
            f"{type(self).__name__} has none of _transform_arrow, _transform_pandas and _transform_numpy"
        )

    def _transform_whole(self, data: Any) -> Any:
        """A batch of `_format()` transformed."""
        name = {"pyarrow": "arrow"}.get(self._format(), self._format())
        return getattr(self, f"_transform_{name}")(data)

    def _fit(self, ds: Any) -> Preprocessor:
        raise NotImplementedError(f"{type(self).__name__} has no _fit")

    def get_input_columns(self) -> list[str]:
        """The columns that it reads."""
        return list(getattr(self, "columns", None) or [])

    def get_output_columns(self) -> list[str]:
        """The columns that it makes or replaces."""
        return list(getattr(self, "output_columns", None) or self.get_input_columns())

    def serialize(self) -> str:
        """The preprocessor with what it learnt, as text."""
        return base64.b64encode(cloudpickle.dumps(self)).decode("ascii")

    @staticmethod
    def deserialize(serialized: str) -> Preprocessor:
        """The preprocessor of a text that `serialize` made. It is a pickle: never read texts of others."""
        made = pickle.loads(base64.b64decode(serialized))
        if not isinstance(made, Preprocessor):
            raise TypeError(f"the text holds no preprocessor, but a {type(made).__name__}")
        return made

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({told})"

    def _parameters(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if not name.startswith("_") and name != "stats_"
        }


def output_columns_of(columns: Sequence[str], output_columns: Sequence[str] | None) -> list[str]:
    """The columns that results go into: the same ones by default.

    Raises:
        ValueError: there are more or fewer of them.
    """
    if output_columns is None:
        return list(columns)
    if len(output_columns) != len(columns):
        raise ValueError(
            f"{len(columns)} columns have {len(output_columns)} output columns: {output_columns}"
        )
    return list(output_columns)


def set_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    """The table with a column replaced or appended."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    if not table.num_columns:
        return pa.table({name: column})
    return table.append_column(name, column)


def get_column(table: pa.Table, name: str) -> Any:
    """A column.

    Raises:
        KeyError: it is missing.
    """
    if name not in table.column_names:
        known = ", ".join(map(repr, table.column_names))
        raise KeyError(f"there is no column {name!r}; columns are {known}")
    return table.column(name)
