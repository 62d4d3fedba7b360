"""Several preprocessors one after another."""

from __future__ import annotations

from typing import Any

from runtime.data.preprocessor import Preprocessor


class Chain(Preprocessor):
    """Applies preprocessors in order. Each is fitted on what those before it make of the data set."""

    def __init__(self, *preprocessors: Preprocessor) -> None:
        self.preprocessors = preprocessors

    def fit_status(self) -> Preprocessor.FitStatus:
        """Fitted if all are that need it."""
        status = Preprocessor.FitStatus
        found = {preprocessor.fit_status() for preprocessor in self.preprocessors} - {status.NOT_FITTABLE}
        if not found:
            return status.NOT_FITTABLE
        return found.pop() if len(found) == 1 else status.PARTIALLY_FITTED

    def has_stats(self) -> bool:
        """Whether something was learnt."""
        return any(preprocessor.has_stats() for preprocessor in self.preprocessors)

    def fit(self, ds: Any) -> Preprocessor:
        """Learns, in order: all but the last preprocessor transform the data set for the next."""
        for preprocessor in self.preprocessors[:-1]:
            ds = preprocessor.fit_transform(ds)
        for preprocessor in self.preprocessors[-1:]:
            preprocessor.fit(ds)
        return self

    def transform_batch(self, data: Any) -> Any:
        """A batch transformed by all, in the format it came in."""
        self._check_fitted()
        for preprocessor in self.preprocessors:
            data = preprocessor.transform_batch(data)
        return data

    def _format(self) -> str:
        return "pyarrow"

    def _transform_whole(self, data: Any) -> Any:
        return self.transform_batch(data)

    def get_input_columns(self) -> list[str]:
        """The columns that are read, and not made by an earlier preprocessor."""
        read: list[str] = []
        made: set[str] = set()
        for preprocessor in self.preprocessors:
            read += [
                name for name in preprocessor.get_input_columns() if name not in made and name not in read
            ]
            made.update(preprocessor.get_output_columns())
        return read

    def get_output_columns(self) -> list[str]:
        """The columns that are made or replaced."""
        made = [name for preprocessor in self.preprocessors for name in preprocessor.get_output_columns()]
        return list(dict.fromkeys(made))

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.preprocessors))})"
