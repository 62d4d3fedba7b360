"""Expressions: values as Ray 2.60 computes them for the same block, push-down, structure."""

from __future__ import annotations

import datetime
import logging
import math
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from pyarrow.fs import LocalFileSystem

from runtime.data import expressions as ex
from runtime.data._block import tensor
from runtime.data.datatype import DataType
from runtime.data.expressions import Expr, col, lit

TABLE = pa.table(
    {
        "i": [7, -7, None],
        "j": [2, 2, 2],
        "f": [7.5, -7.5, 0.5],
        "b": [True, False, None],
        "s": ["ab c", None, "B"],
        "l": [[3, 1, None], [], None],
        "ll": [[[1], [2]], [], None],
        "d": [{"a": 1}, {"a": 2}, None],
        "m": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "t": [datetime.datetime(2026, 1, 2, 3, 4, 5)] * 3,
        "c": pa.array(["x", "y", None]).dictionary_encode(),
        "n": tensor.from_numpy(np.arange(6).reshape(3, 2)),
    }
)
DAY = datetime.datetime(2026, 1, 2)
AS_RAY: list[tuple[Expr, list[Any]]] = [
    (col("i") / col("j"), [3, -3, None]),
    (col("i") / 2, [3, -3, None]),
    (col("f") // 2, [3.0, -4.0, 0.0]),
    (col("f") % 2, [1.5, 0.5, 0.5]),
    (col("b") | True, [True, True, True]),
    (col("i").is_in([7, None]), [True, False, True]),
    (col("i").not_in([7]), [False, True, True]),
    (col("i") == None, [None, None, None]),  # noqa: E711
    (col("f").round(), [8.0, -8.0, 0.0]),
    (col("f").trunc(), [7.0, -7.0, 0.0]),
    (col("f").ceil(), [8.0, -7.0, 1.0]),
    (col("f").floor(), [7.0, -8.0, 0.0]),
    (col("i").power(2), [49, 49, None]),
    (col("s").str.rpad(6, "*"), ["ab c**", None, "B*****"]),
    (col("s").str.pad(6, "*", "both"), ["*ab c*", None, "**B***"]),
    (col("s").str.extract(r"(?P<x>b)"), [{"x": "b"}, None, None]),
    (col("s").str.split(" "), [["ab", "c"], None, ["B"]]),
    (col("s").str.slice(1), ["b c", None, ""]),
    (col("s").str.match("a%"), [True, None, False]),
    (col("s").str.find("c"), [3, None, -1]),
    (col("s").str.strip("c"), ["ab ", None, "B"]),
    (col("l").list.len(), [3, 0, None]),
    (col("l").list.sort(), [[1, 3, None], [], None]),
    (col("l").list.slice(0, 2), [[3, 1], [], None]),
    (col("ll").list.flatten(), [[1, 2], [], None]),
    (col("d").struct.field("a"), [1, 2, None]),
    (col("d").struct["a"], [1, 2, None]),
    (col("m").map.keys(), [["a"], [], None]),
    (col("m").map.values(), [[1], [], None]),
    (col("t").dt.strftime("%Y"), ["2026", "2026", "2026"]),
    (col("t").dt.floor("day"), [DAY, DAY, DAY]),
    (col("f").cast(DataType.int64(), safe=False), [7, -7, 0]),
    (col("i").negate(), [-7, 7, None]),
    (col("i").abs(), [7, 7, None]),
    (~col("b"), [False, True, None]),
    (col("i").sign(), [1, -1, None]),
    (1 - col("i"), [-6, 8, None]),
    (col("i") * 1.5, [10.5, -10.5, None]),
    (lit([1, 2]), [[1, 2], [1, 2], [1, 2]]),
    (lit(None), [None, None, None]),
    (ex.monotonically_increasing_id(), [0, 1, 2]),
]
OURS: list[tuple[Expr, list[Any]]] = [
    (col("i") // 2, [3, -4, None]),  # Ray: 3.0, -3.0
    (col("i") % 4, [3, 1, None]),  # Ray: 3.0, -3.0
    (2**3 + col("i") // 0, [None, None, None]),
    (10 // col("j"), [5, 5, 5]),
    (9 % col("j"), [1, 1, 1]),
    (col("b") & lit(None), [None, False, None]),
    (True & col("b"), [True, False, None]),
    (False | (col("i") > 0), [True, False, None]),
    (-col("i") + 1 - 2 * col("j"), [-10, 4, None]),
    (8 / col("j"), [4, 4, 4]),
    ((col("i") >= 7) & (col("i") <= 7) & (col("i") != 8) & (col("i") < 8), [True, False, None]),
    (col("c") == "x", [True, False, None]),
    (col("c").is_in(["y"]), [False, True, False]),
    (col("c").cast(pa.string()), ["x", "y", None]),
    (col("i").is_null(), [False, False, True]),
    (col("i").is_not_null(), [True, True, False]),
    (lit(7).is_in([7, 8]), [True, True, True]),
    (col("l").list.get(0), [3, None, None]),
    (col("l").list[-2], [1, None, None]),
    (col("l").list.slice(-2), [[1, None], [], None]),
    (col("l").list.slice(None, None, -1), [[None, 1, 3], [], None]),
    (col("l").list.sort("descending", "at_start"), [[None, 3, 1], [], None]),
    (col("n").arr.to_list(), [[0, 1], [2, 3], [4, 5]]),
    (col("d").struct.field_by_index(0), [1, 2, None]),
    (col("s").str.upper(), ["AB C", None, "B"]),
    (col("s").str.len(), [4, None, 1]),
    (col("s").str.replace("b", "x", max_replacements=1), ["ax c", None, "B"]),
    (col("s").str.replace_regex("[a-z]", "."), [".. .", None, "B"]),
    (col("s").str.replace_slice(0, 1, "--"), ["--b c", None, "--"]),
    (col("s").str.contains("B", ignore_case=True), [True, None, True]),
    (col("s").str.starts_with("a"), [True, None, False]),
    (col("s").str.count_regex("[a-z]"), [3, None, 0]),
    (col("s").str.split_whitespace(), [["ab", "c"], None, ["B"]]),
    (col("s").str.repeat(2), ["ab cab c", None, "BB"]),
    (col("s").str.rstrip(), ["ab c", None, "B"]),
    (col("s").str.center(3, "."), ["ab c", None, ".B."]),
    (col("t").dt.month(), [1, 1, 1]),
    (col("t").dt.hour() * 60 + col("t").dt.minute(), [184, 184, 184]),
    (col("f").round(1), [7.5, -7.5, 0.5]),
    (col("j").sqrt().power(2).round(), [2.0, 2.0, 2.0]),
    (col("j").exp().ln().round(), [2.0, 2.0, 2.0]),
    (col("j").log2(), [1.0, 1.0, 1.0]),
    (
        lit(0.0).sin() + lit(0.0).cos() + lit(0.0).tan() + lit(0).asin() + lit(1).acos() + lit(0).atan(),
        [1.0] * 3,
    ),
    (col("j").call("bit_wise_xor", 3), [1, 1, 1]),
    (col("i").alias("z"), [7, -7, None]),
]


@pytest.mark.parametrize(("expr", "values"), AS_RAY + OURS, ids=repr)
@pytest.mark.parametrize("chunks", [1, 2])
def test_values(expr: Expr, values: list[Any], chunks: int) -> None:
    table = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]) if chunks == 2 else TABLE
    assert expr.evaluate(table).to_pylist() == values


@pytest.mark.parametrize(("expr", "values"), AS_RAY + OURS, ids=repr)
def test_expressions_know_their_type_travel_and_read_slices(expr: Expr, values: list[Any]) -> None:
    assert expr.evaluate(TABLE.slice(1)).to_pylist()[:1] == values[1:2] or expr.columns() == set()
    assert expr.get_type(TABLE.schema) == expr.evaluate(TABLE).type
    back = pickle.loads(pickle.dumps(expr))
    assert back.structurally_equals(expr)
    assert repr(back) == repr(expr)
    assert expr.columns() <= set(TABLE.column_names)


PUSHED = [
    (col("i") > 0) & col("s").is_not_null(),
    col("i").is_in([7, None]),
    ~(col("f") < 0) | (col("j") == 3),
    (col("i") + 1) * 2 > 3,
    col("s").str.starts_with("a"),
    col("t") < datetime.datetime(2027, 1, 1),
    col("i").alias("x") == 7,
]


@pytest.mark.parametrize("predicate", PUSHED, ids=repr)
def test_readers_filter_alike(predicate: Expr, tmp_path: Path) -> None:
    table = TABLE.select(["i", "j", "f", "s", "t"])
    pushed = predicate.to_arrow()
    assert pushed is not None
    dataset = pads.InMemoryDataset(table)
    assert dataset.to_table(filter=pushed).equals(ex.filter_table(table, predicate))


def test_what_is_not_arrows_is_not_pushed_down() -> None:
    for expr in (col("l").list.get(0) == 1, ex.random() > 0.5, col("i") // 2 == 1):
        assert expr.to_arrow() is None
        with pytest.raises(TypeError, match="cannot be expressed"):
            expr.to_pyarrow()


def test_structure() -> None:
    expr = (col("a") + 1) * col("b")
    assert repr(expr) == "((col('a') + 1) * col('b'))"
    assert expr.columns() == {"a", "b"}
    assert expr.structurally_equals((col("a") + 1) * col("b"))
    assert not expr.structurally_equals((col("a") + 2) * col("b"))
    assert not (col("a") + 1).structurally_equals(col("a") + 1.0)
    assert not (col("a") + 1).structurally_equals(col("a") + True)
    assert repr(expr.replace_columns({"a": col("x").abs()})) == "((abs(col('x')) + 1) * col('b'))"
    assert (col("a").name, expr.name, expr.alias("z").name) == ("a", None, "z")
    assert len({col("a"), col("a")}) == 2
    with pytest.raises(TypeError, match="combine expressions by &"):
        bool(col("a") > 1 and col("b"))


def test_fields() -> None:
    assert (col("i") > 1).alias("large").to_field(TABLE.schema) == pa.field("large", pa.bool_())
    with pytest.raises(ValueError, match="no name"):
        (col("i") > 1).to_field(TABLE.schema)


def test_projections() -> None:
    schema = TABLE.schema
    assert [expr.name for expr in ex.star().expand_projection(schema)] == schema.names
    parts = ex.unnest(col("d")).expand_projection(schema)
    assert [(part.name, part.evaluate(TABLE).to_pylist()) for part in parts] == [("a", [1, 2, None])]
    with pytest.raises(TypeError, match="needs a struct, not int64"):
        ex.unnest(col("i")).expand_projection(schema)
    with pytest.raises(TypeError, match="stands for columns"):
        ex.star().evaluate(TABLE)
    assert ex.project(TABLE, {"x": col("i"), "y": lit(1)}).to_pydict() == {"x": [7, -7, None], "y": [1, 1, 1]}
    assert ex.project(TABLE, {}).num_rows == 3


def test_filters_leave_out_nulls_and_need_truth_values() -> None:
    assert ex.filter_table(TABLE, col("b"))["i"].to_pylist() == [7]
    assert ex.filter_table(TABLE, lit(True)).num_rows == 3
    with pytest.raises(TypeError, match="true or false, not col"):
        ex.filter_table(TABLE, col("i"))


def test_errors_say_where() -> None:
    with pytest.raises(KeyError, match="no column 'x'; columns are 'i', 'j'"):
        (col("x") + 1).evaluate(TABLE)
    with pytest.raises(pa.ArrowNotImplementedError) as caught:
        (col("i") + "a").evaluate(TABLE)
    assert caught.value.__notes__ == ["in the expression (col('i') + 'a')"]
    with pytest.raises(TypeError, match="'no_such' is no function"):
        col("i").call("no_such").evaluate(TABLE)
    with pytest.raises(TypeError, match="flatten needs lists of lists"):
        col("l").list.flatten().evaluate(TABLE)


@ex.udf(DataType.float64())
def scaled(x: pa.Array, by: Any = None) -> Any:
    return x.to_numpy(zero_copy_only=False) * (1 if by is None else by[0].as_py())


@ex.udf(return_dtype=DataType.int64())
class Adder:
    made = 0

    def __init__(self, number: int) -> None:
        type(self).made += 1
        self.number = number

    def __call__(self, x: pa.Array) -> list[Any]:
        return [None if value is None else value + self.number for value in x.to_pylist()]


def test_functions_of_users() -> None:
    expr = scaled(col("f"), by=lit(2)) + 1
    assert expr.evaluate(TABLE).to_pylist() == [16.0, -14.0, 2.0]
    assert repr(expr) == "(scaled(col('f'), 2) + 1)"
    assert expr.columns() == {"f"}
    assert not expr.is_idempotent()
    assert scaled(col("j")).get_type(TABLE.schema) == pa.float64()
    assert cloudpickle.loads(cloudpickle.dumps(expr)).evaluate(TABLE).to_pylist() == [16.0, -14.0, 2.0]


def test_classes_of_users_are_made_once() -> None:
    expr = Adder(5)(col("i"))
    assert [expr.evaluate(TABLE).to_pylist() for _ in range(2)] == [[12, -2, None]] * 2
    assert expr.function._recipe[0].made == 1
    assert repr(expr) == "Adder(col('i'))"


def test_a_wrong_number_of_values_is_an_error() -> None:
    short = ex.udf(DataType.int64())(lambda x: x[:1])
    with pytest.raises(ValueError, match="returned 1 values for 3 rows"):
        short(col("i")).evaluate(TABLE)


def test_numbers_of_rows_differ_between_tasks() -> None:
    ids = [
        ex.monotonically_increasing_id().evaluate(TABLE, ex.Position(task, row)).to_pylist()
        for task in (0, 1)
        for row in (0, 3)
    ]
    assert len({number for part in ids for number in part}) == 12
    assert ids[1] == [3, 4, 5]


def test_random_numbers() -> None:
    seeded = ex.random(seed=3)
    first = seeded.evaluate(TABLE).to_pylist()
    assert first == ex.random(seed=3).evaluate(TABLE).to_pylist()
    assert first != seeded.evaluate(TABLE, ex.Position(task=1)).to_pylist()
    assert all(0 <= number < 1 for number in first)
    assert ex.random().evaluate(TABLE).to_pylist() != ex.random().evaluate(TABLE).to_pylist()
    assert not ex.random().structurally_equals(ex.random())
    assert not seeded.is_idempotent()
    assert len(set(ex.uuid().evaluate(TABLE).to_pylist())) == 3
    assert (col("i") + 1).is_idempotent()


def test_downloads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a").write_bytes(b"one")
    table = pa.table({"uri": [str(tmp_path / "a"), None, str(tmp_path / "missing")]})
    expr = ex.download("uri")
    with caplog.at_level(logging.WARNING):
        assert expr.evaluate(table).to_pylist() == [b"one", None, None]
    assert "missing failed" in caplog.text
    assert expr.columns() == {"uri"}
    assert ex.download("uri", filesystem=LocalFileSystem()).evaluate(table.slice(0, 1)).to_pylist() == [
        b"one"
    ]
    assert expr.replace_columns({"uri": col("path")}).columns() == {"path"}


def test_logarithms_of_negative_numbers_are_nan() -> None:
    values = col("i").log10().evaluate(TABLE).to_pylist()
    assert values[0] == pytest.approx(math.log10(7))
    assert math.isnan(values[1])


def test_decimals_have_room_for_their_result() -> None:
    price, part = (pa.array([Decimal(text)]).cast(pa.decimal128(15, 2)) for text in ("901.00", "0.06"))
    total = col("price") * (lit(1) - col("part")) * (lit(1) + col("part"))
    found = total.evaluate(pa.table({"price": price, "part": part}))
    assert found.to_pylist() == [Decimal("901") * (1 - Decimal("0.06")) * (1 + Decimal("0.06"))]
    assert total.get_type(pa.schema({"price": price.type, "part": part.type})) == found.type


def test_no_rows() -> None:
    empty = TABLE.slice(0, 0)
    for expr, _ in AS_RAY + OURS:
        assert len(expr.evaluate(empty)) == 0
