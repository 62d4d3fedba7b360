"""Preprocessors: what they learn and make is what Ray 2.60 does with the same data, in all formats of batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from runtime.data import preprocessors as pre
from runtime.data._block import aggregates, batch
from runtime.data.preprocessor import Preprocessor, PreprocessorNotFittedException


class Blocks:
    """As much of a data set as preprocessors need, without a cluster."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self.tables = tables

    def aggregate(self, *aggs: Any) -> dict[str, Any]:
        row: dict[str, Any] = aggregates.aggregate(self.tables, [], aggs).to_pylist()[0]
        return row

    def map_batches(self, fn: Any, *, batch_format: str, **_: Any) -> Blocks:
        return Blocks([batch.from_batch(fn(batch.to_batch(table, batch_format))) for table in self.tables])

    def rows(self) -> list[dict[str, Any]]:
        return [row for table in self.tables for row in batch.rows(table)]


LEARN = pa.table(
    {
        "x": [1.0, 2.0, 3.0, None],
        "y": [0, 0, 0, 0],
        "z": [-4.0, 2.0, 1.0, 8.0],
        "s": ["a", "b", "a", "a"],
        "l": [["p", "q"], ["q"], [], ["r"]],
        "t": ["hello world", "a b a", "", "world"],
    }
)
OTHER = pa.table(
    {
        "x": [5.0, None],
        "y": [1, 2],
        "z": [0.0, 1.0],
        "s": ["c", "b"],
        "l": [["q", "q"], ["zz"]],
        "t": ["b a", "world"],
    }
)


def learn() -> Blocks:
    return Blocks([LEARN.slice(0, 1), LEARN.slice(1, 0), LEARN.slice(1)])


def plain(values: Any) -> Any:
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


def values_of(table: pa.Table, name: str) -> Any:
    return plain(batch.column_to_list(table.column(name)))


ROOT = float(np.sqrt(2 / 3))
CASES: list[tuple[Preprocessor, dict[str, Any], dict[str, Any]]] = [
    (
        pre.StandardScaler(["x", "y"]),
        {"x": [-1 / ROOT, 0.0, 1 / ROOT, None], "y": [0.0] * 4},
        {"x": [3 / ROOT, None], "y": [1.0, 2.0]},
    ),
    (
        pre.MinMaxScaler(["x", "y"]),
        {"x": [0.0, 0.5, 1.0, None], "y": [0.0] * 4},
        {"x": [2.0, None], "y": [1.0, 2.0]},
    ),
    (
        pre.MaxAbsScaler(["z", "y"], output_columns=["zo", "yo"]),
        {"z": [-4.0, 2.0, 1.0, 8.0], "zo": [-0.5, 0.25, 0.125, 1.0], "yo": [0.0] * 4},
        {"zo": [0.0, 0.125], "yo": [1.0, 2.0]},
    ),
    (
        pre.Normalizer(["y", "z"]),
        {"y": [0.0] * 4, "z": [-1.0, 1.0, 1.0, 1.0]},
        {"y": [1.0, 2 / np.sqrt(5)], "z": [0.0, 1 / np.sqrt(5)]},
    ),
    (
        pre.Normalizer(["y", "z"], norm="l1"),
        {"z": [-1.0, 1.0, 1.0, 1.0]},
        {"y": [1.0, 2 / 3], "z": [0.0, 1 / 3]},
    ),
    (
        pre.Normalizer(["y", "z"], norm="max"),
        {"z": [-1.0, 1.0, 1.0, 1.0]},
        {"y": [1.0, 1.0], "z": [0.0, 0.5]},
    ),
    (
        pre.PowerTransformer(["z"], power=0.5),
        {"z": [-6.786893258332633, 1.4641016151377544, 0.8284271247461903, 4.0]},
        {"z": [0.0, 0.8284271247461903]},
    ),
    (pre.PowerTransformer(["y"], power=0, method="box-cox"), {}, {"y": [0.0, np.log(2)]}),
    (pre.OrdinalEncoder(["s"]), {"s": [0, 1, 0, 0]}, {"s": [None, 1]}),
    (pre.OrdinalEncoder(["l"]), {"l": [[0, 1], [1], [], [2]]}, {"l": [[1, 1], [None]]}),
    (pre.OrdinalEncoder(["l"], encode_lists=False), {"l": [1, 2, 0, 3]}, {"l": [None, None]}),
    (pre.OneHotEncoder(["s"]), {"s": [[1, 0], [0, 1], [1, 0], [1, 0]]}, {"s": [[0, 0], [0, 1]]}),
    (pre.OneHotEncoder(["s"], max_categories={"s": 1}), {"s": [[1], [0], [1], [1]]}, {"s": [[0], [0]]}),
    (
        pre.MultiHotEncoder(["l"]),
        {"l": [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]},
        {"l": [[0, 2, 0], [0, 0, 0]]},
    ),
    (pre.MultiHotEncoder(["l"], max_categories={"l": 1}), {"l": [[1], [1], [0], [0]]}, {"l": [[2], [0]]}),
    (pre.MultiHotEncoder(["s"]), {"s": [[1, 0], [0, 1], [1, 0], [1, 0]]}, {"s": [[0, 0], [0, 1]]}),
    (pre.LabelEncoder("s"), {"s": [0, 1, 0, 0]}, {"s": [None, 1]}),
    (pre.Categorizer(["s"]), {"s": ["a", "b", "a", "a"]}, {"s": [None, "b"]}),
    (
        pre.Categorizer(["s"], dtypes={"s": pd.CategoricalDtype(["b", "a"])}),
        {"s": ["a", "b", "a", "a"]},
        {"s": [None, "b"]},
    ),
    (pre.SimpleImputer(["x"]), {"x": [1.0, 2.0, 3.0, 2.0]}, {"x": [5.0, 2.0]}),
    (pre.SimpleImputer(["s"], strategy="most_frequent"), {"s": ["a", "b", "a", "a"]}, {"s": ["c", "b"]}),
    (
        pre.SimpleImputer(["x"], strategy="constant", fill_value=9, output_columns=["o"]),
        {"x": [1.0, 2.0, 3.0, None], "o": [1.0, 2.0, 3.0, 9.0]},
        {"o": [5.0, 9.0]},
    ),
    (pre.UniformKBinsDiscretizer(["z"], bins=3), {"z": [0, 1, 1, 2]}, {"z": [0, 1]}),
    (pre.CustomKBinsDiscretizer(["z"], bins=[-10, 0, 2, 9]), {"z": [0, 1, 1, 2]}, {"z": [0, 1]}),
    (
        pre.CustomKBinsDiscretizer(["z"], bins={"z": [-4, 1, 2]}, right=False),
        {"z": [0, None, 1, None]},
        {"z": [0, 1]},
    ),
    (
        pre.Tokenizer(["t"]),
        {"t": [["hello", "world"], ["a", "b", "a"], [""], ["world"]]},
        {"t": [["b", "a"], ["world"]]},
    ),
    (
        pre.CountVectorizer(["t"]),
        {"t": [[0, 1, 0, 0, 1], [2, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]]},
        {"t": [[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]]},
    ),
    (
        pre.CountVectorizer(["t"], max_features=2),
        {"t": [[0, 1], [2, 0], [0, 0], [0, 1]]},
        {"t": [[1, 0], [0, 1]]},
    ),
    (
        pre.Chain(pre.SimpleImputer(["x"]), pre.StandardScaler(["x"])),
        {"x": [-np.sqrt(2), 0.0, np.sqrt(2), 0.0]},
        {"x": [3 * np.sqrt(2), 0.0]},
    ),
    (
        pre.Concatenator(["x", "z", "y"], raise_if_missing=True),
        {"concat_out": [[1.0, -4.0, 0.0], [2.0, 2.0, 0.0], [3.0, 1.0, 0.0], [None, 8.0, 0.0]]},
        {"concat_out": [[5.0, 0.0, 1.0], [None, 1.0, 2.0]]},
    ),
]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    missing = [value is None or value != value for value in (left, right)]
    if any(missing):
        return all(missing)
    return bool(left == right or (isinstance(left, float) and abs(left - right) < 1e-9))


@pytest.mark.parametrize(("preprocessor", "learnt", "other"), CASES, ids=lambda value: repr(value)[:60])
def test_as_ray_does(preprocessor: Preprocessor, learnt: dict[str, Any], other: dict[str, Any]) -> None:
    fitted = preprocessor.fit(learn())
    assert fitted is preprocessor
    assert fitted.fit_status() in (Preprocessor.FitStatus.FITTED, Preprocessor.FitStatus.NOT_FITTABLE)
    made = fitted.transform(learn()).rows()
    for name, values in learnt.items():
        assert same(plain(row[name] for row in made), values), (name, made)
    table = fitted.transform_batch(OTHER)
    for name, values in other.items():
        assert same(values_of(table, name), values), (name, table)
    back = Preprocessor.deserialize(fitted.serialize())
    again = back.transform_batch(OTHER)
    assert again.schema == table.schema
    assert all(same(values_of(again, name), values_of(table, name)) for name in other)


@pytest.mark.parametrize("preprocessor", [case[0] for case in CASES], ids=lambda value: repr(value)[:60])
def test_all_formats_of_batches(preprocessor: Preprocessor) -> None:
    preprocessor.fit(learn())
    table = preprocessor.transform_batch(OTHER)
    arrays = preprocessor.transform_batch(batch.to_numpy(OTHER))
    assert isinstance(arrays, dict)
    assert list(arrays) == table.column_names
    frame = preprocessor.transform_batch(OTHER.to_pandas().set_axis([7, 8]))
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == table.column_names
    assert list(frame.index) == [7, 8]
    empty = preprocessor.transform_batch(OTHER.slice(0, 0))
    assert empty.num_rows == 0
    assert empty.column_names == table.column_names


def test_what_was_not_fitted_does_not_transform() -> None:
    scaler = pre.StandardScaler(["x"])
    assert scaler.fit_status() == Preprocessor.FitStatus.NOT_FITTED
    assert not scaler.has_stats()
    for use in (lambda: scaler.transform_batch(LEARN), lambda: scaler.transform(learn())):
        with pytest.raises(
            PreprocessorNotFittedException, match=r"StandardScaler\(columns=\['x'\].* fitted first"
        ):
            use()
    chain = pre.Chain(scaler, pre.Tokenizer(["t"]), pre.MinMaxScaler(["z"]))
    assert chain.fit_status() == Preprocessor.FitStatus.NOT_FITTED
    scaler.fit(learn())
    assert chain.fit_status() == Preprocessor.FitStatus.PARTIALLY_FITTED
    assert chain.has_stats()
    assert pre.Chain(pre.Tokenizer(["t"])).fit_status() == Preprocessor.FitStatus.NOT_FITTABLE
    assert chain.fit_transform(learn()).rows()[0]["z"] == 0.0
    assert chain.fit_status() == Preprocessor.FitStatus.FITTED
    assert chain.get_input_columns() == ["x", "t", "z"]
    assert chain.get_output_columns() == ["x", "t", "z"]


def test_stats_have_rays_names() -> None:
    scaler = pre.StandardScaler(["x"])
    scaler.fit(learn())
    assert scaler.stats_ == {"mean(x)": 2.0, "std(x)": pytest.approx(ROOT)}
    encoder = pre.OrdinalEncoder(["s"])
    encoder.fit(learn())
    assert encoder.stats_ == {"unique_values(s)": {"a": 0, "b": 1}}


def test_robust_scaler() -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"x": rng.normal(3, 2, 10_000)})
    scaler = pre.RobustScaler(["x"])
    scaler.fit(Blocks([table]))
    values = scaler.transform_batch(table)["x"].to_numpy()
    assert abs(np.median(values)) < 0.01
    assert abs(np.diff(np.quantile(values, [0.25, 0.75]))[0] - 1) < 0.01


def test_nothing_to_learn_from() -> None:
    empty = Blocks([LEARN.slice(0, 0)])
    scaler = pre.StandardScaler(["x"])
    scaler.fit(empty)
    assert scaler.transform_batch(LEARN)["x"].to_pylist() == [None] * 4
    encoder = pre.OrdinalEncoder(["s"])
    encoder.fit(empty)
    assert encoder.transform_batch(LEARN)["s"].to_pylist() == [None] * 4
    imputer = pre.SimpleImputer(["x"])
    imputer.fit(empty)
    with pytest.raises(ValueError, match="no values to learn from"):
        imputer.transform_batch(LEARN)


def test_labels_come_back() -> None:
    encoder = pre.LabelEncoder("s", output_column="n")
    encoder.fit(learn())
    numbered = encoder.transform(learn())
    assert [row["n"] for row in numbered.rows()] == [0, 1, 0, 0]
    wiped = Blocks([table.drop_columns(["s"]) for table in numbered.tables])
    assert [row["s"] for row in encoder.inverse_transform(wiped).rows()] == ["a", "b", "a", "a"]


def test_categories_with_nulls_are_refused() -> None:
    with pytest.raises(ValueError, match="column 's' has nulls"):
        pre.OneHotEncoder(["s"]).fit(Blocks([pa.table({"s": ["a", None]})]))


def test_a_category_is_categorical_in_pandas() -> None:
    categorizer = pre.Categorizer(["s"])
    categorizer.fit(learn())
    assert categorizer.transform_batch(OTHER.to_pandas())["s"].dtype == pd.CategoricalDtype(["a", "b"])


def test_intervals() -> None:
    table = pa.table({"x": [5.0, 5.0]})
    same_values = pre.UniformKBinsDiscretizer(["x"], bins=2)
    same_values.fit(Blocks([table]))
    assert same_values.transform_batch(table)["x"].to_pylist() == [0, 0]
    named = pd.CategoricalDtype(["low", "high"])
    labels = pre.CustomKBinsDiscretizer(["z"], bins=[-10, 0, 9], dtypes={"z": named}).transform_batch(LEARN)
    assert labels["z"].to_pylist() == ["low", "high", "high", "high"]
    small = pre.CustomKBinsDiscretizer(["z"], bins=[-10, 0, 9], dtypes={"z": np.int8}).transform_batch(LEARN)
    assert small["z"].type == pa.int8()
    lowest = pre.CustomKBinsDiscretizer(["z"], bins=[-4, 0, 9], include_lowest=True).transform_batch(LEARN)
    assert lowest["z"].to_pylist() == [0, 1, 1, 1]
    with pytest.raises(ValueError, match="equal borders"):
        pre.CustomKBinsDiscretizer(["z"], bins=[0, 0, 1]).transform_batch(LEARN)
    dropped = pre.CustomKBinsDiscretizer(["z"], bins=[-9, 2, 2, 9], duplicates="drop").transform_batch(LEARN)
    assert dropped["z"].to_pylist() == [0, 0, 0, 1]


def test_pandas_cuts_alike() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=500)
    table = pa.table({"x": values})
    for right in (True, False):
        binner = pre.UniformKBinsDiscretizer(["x"], bins=7, right=right)
        binner.fit(Blocks([table]))
        expected = pd.cut(values, 7, right=right, labels=False)
        assert binner.transform_batch(table)["x"].to_pylist() == expected.tolist()


def test_hashes_of_texts_are_stable() -> None:
    vectors = batch.to_numpy(pre.HashingVectorizer(["t"], num_features=4).transform_batch(OTHER))["t"]
    assert vectors.sum(axis=1).tolist() == [2, 1]
    hashed = pre.FeatureHasher(["x", "z"], num_features=4, output_column="h")
    made = batch.to_numpy(hashed.transform_batch(LEARN))
    assert made["h"].tolist()[0] == [0.0, 1.0, -4.0, 0.0]
    assert made["h"].sum(axis=1).tolist() == [-3.0, 4.0, 4.0, 8.0]
    assert list(made) == [*LEARN.column_names, "h"]


def test_concatenated_columns() -> None:
    made = pre.Concatenator(["z", "y"], dtype=np.float32, output_column_name="o").transform_batch(LEARN)
    assert made.column_names == ["x", "s", "l", "t", "o"]
    vectors = batch.to_numpy(made)["o"]
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[-4, 0], [2, 0], [1, 0], [8, 0]]
    nested = {"a": np.ones((2, 3)), "b": np.array([5, 6]), "c": np.zeros((2, 1, 2)), "d": [[1, 2], [3, 4]]}
    joined = pre.Concatenator(["a", "b", "d"]).transform_batch(nested)
    assert joined["concat_out"].tolist() == [[1, 1, 1, 5, 1, 2], [1, 1, 1, 6, 3, 4]]
    assert pre.Concatenator(["c", "b"], flatten=True).transform_batch(nested)["concat_out"].shape == (2, 3)
    assert pre.Concatenator(["b", "missing"]).transform_batch(nested)["concat_out"].tolist() == [[5], [6]]
    for wrong, message in (
        (pre.Concatenator(["c"]), "set flatten=True"),
        (pre.Concatenator(["missing"]), "none of the columns missing"),
        (pre.Concatenator(["missing"], raise_if_missing=True), "no column 'missing'"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong.transform_batch(nested)
    with pytest.raises(TypeError, match="has no numbers"):
        pre.Concatenator(["s"]).transform_batch(LEARN)


def test_transforms_of_images() -> None:
    images = {"i": np.arange(24.0).reshape(2, 3, 4)}
    half = pre.TorchVisionPreprocessor(["i"], lambda image: image[:, :2] / 2, output_columns=["o"])
    assert half.transform_batch(images)["o"].shape == (2, 3, 2)
    whole = pre.TorchVisionPreprocessor(["i"], lambda batch_: batch_.sum(axis=(1, 2)), batched=True)
    assert whole.transform_batch(images)["i"].tolist() == [66.0, 210.0]
    ragged = pre.TorchVisionPreprocessor(["i"], lambda image: image[: int(image[0, 0]) // 6 + 1])
    assert [image.shape for image in ragged.transform_batch(images)["i"]] == [(1, 4), (3, 4)]


class Doubled(Preprocessor):
    """As users write one."""

    def __init__(self, column: str) -> None:
        self.column = column

    def _fit(self, ds: Any) -> Preprocessor:
        from runtime.data.aggregate import Max

        self.stats_ = ds.aggregate(Max(self.column))
        return self

    def _transform_pandas(self, df: pd.DataFrame) -> pd.DataFrame:
        df[self.column] = df[self.column] * 2 + self.stats_[f"max({self.column})"]
        return df


def test_preprocessors_of_users() -> None:
    doubled = Doubled("z")
    assert [row["z"] for row in doubled.fit_transform(learn()).rows()] == [0.0, 12.0, 10.0, 24.0]
    assert doubled.transform_batch(batch.to_numpy(LEARN))["z"].tolist() == [0.0, 12.0, 10.0, 24.0]
    assert repr(doubled) == "Doubled(column='z')"


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="not the name 'x'"):
        pre.StandardScaler("x")
    with pytest.raises(ValueError, match="2 columns have 1 output columns"):
        pre.StandardScaler(["x", "y"], output_columns=["o"])
    with pytest.raises(ValueError, match="'median' is none of"):
        pre.SimpleImputer(["x"], strategy="median")
    with pytest.raises(ValueError, match="needs fill_value"):
        pre.SimpleImputer(["x"], strategy="constant")
    with pytest.raises(ValueError, match="'l3' is none of"):
        pre.Normalizer(["x"], norm="l3")
    with pytest.raises(KeyError, match="no column 'q'"):
        pre.Normalizer(["q"]).transform_batch(LEARN)
    bare = type("Bare", (Preprocessor,), {"_is_fittable": False})()
    with pytest.raises(NotImplementedError, match="has none of _transform_arrow"):
        bare.transform_batch(LEARN)
