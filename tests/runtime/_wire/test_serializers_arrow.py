"""Arrow values: equal after the trip, in proportion to what they hold, and read in place."""

from __future__ import annotations

import decimal
import pickle
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from runtime._wire import serialization
from runtime._wire.serializers.arrow import compact

ROWS = 20_000
HALF = pa.array(range(ROWS // 2))
WORDS = pa.array([str(i) for i in range(ROWS)])
BIG: dict[str, Any] = {
    "int": pa.array(range(ROWS)),
    "nulls": pa.array([None if i % 3 == 0 else i for i in range(ROWS)]),
    "string": WORDS,
    "large string": WORDS.cast(pa.large_string()),
    "string view": pa.array([f"more than twelve bytes {i}" for i in range(ROWS)], pa.string_view()),
    "bool": pa.array([i % 2 == 0 for i in range(ROWS)]),
    "fixed list": pa.array([[i, i + 1] for i in range(ROWS)], pa.list_(pa.int64(), 2)),
    "list": pa.array([[i] * (i % 4) for i in range(ROWS)]),
    "list view": pa.array([[i] for i in range(ROWS)], pa.list_view(pa.int64())),
    "struct": pa.array([{"a": i, "b": str(i)} for i in range(ROWS)]),
    "nested": pa.array([{"x": [[i], []], "y": None} for i in range(ROWS)]),
    "map": pa.array([[(str(i), i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array([str(i % 10) for i in range(ROWS)]).dictionary_encode(),
    "null": pa.nulls(ROWS),
    "decimal": pa.array([decimal.Decimal(i) for i in range(ROWS)]),
    "time": pa.array(np.arange(ROWS).astype("M8[us]")),
    "fixed binary": pa.array([b"abcd"] * ROWS, pa.binary(4)),
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1] * (ROWS // 2), pa.int8()),
        pa.array(np.repeat(np.arange(ROWS // 2), 2).astype("i4")),
        [HALF, HALF.cast(pa.string())],
    ),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([0, 1] * (ROWS // 2), pa.int8()), [pa.array(range(ROWS)), WORDS]
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array(range(1, ROWS + 1), pa.int32()), WORDS),
}


class Celsius(pa.ExtensionType):
    """A type of the user's."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: Any, _data: bytes) -> Celsius:
        return cls()


def trip(value: Any) -> tuple[Any, int]:
    """The value as a reader gets it, and how many bytes travelled."""
    serialized = serialization.serialize(value)
    size, offsets = serialization.layout(serialized.data, serialized.buffers)
    block = bytearray(size)
    serialization.write_block(memoryview(block), serialized.data, serialized.buffers, offsets)
    data, buffers = serialization.read_block(memoryview(block).toreadonly())
    return serialization.deserialize(data, buffers)[0], size


@pytest.mark.parametrize("kind", BIG)
@pytest.mark.parametrize(("start", "length"), [(0, 10), (ROWS // 2 + 3, 10), (ROWS - 1, 1), (5, 0)])
def test_a_slice_costs_what_it_holds(kind: str, start: int, length: int) -> None:
    part = BIG[kind].slice(start, length)
    result, size = trip(part)
    assert result.equals(part)
    assert size < 4000


@pytest.mark.parametrize("kind", BIG)
def test_a_whole_array_is_not_copied(kind: str) -> None:
    array = BIG[kind]
    serialized = serialization.serialize(array)
    parts = [array, array.dictionary] if kind == "dictionary" else [array]
    own = {buffer.address for part in parts for buffer in part.buffers() if buffer is not None}
    sent = {np.frombuffer(buffer, np.uint8).__array_interface__["data"][0] for buffer in serialized.buffers}
    assert sent <= own
    result, _ = trip(array)
    assert result.equals(array)


def test_reading_is_in_place() -> None:
    serialized = serialization.serialize(BIG["int"])
    buffers = [memoryview(bytes(buffer)) for buffer in serialized.buffers]
    result, _ = serialization.deserialize(serialized.data, buffers)
    addresses = {np.frombuffer(buffer, np.uint8).__array_interface__["data"][0] for buffer in buffers}
    assert result.buffers()[1].address in addresses


def table() -> Any:
    return pa.table(
        {name: BIG[name] for name in ("int", "nulls", "string", "list", "nested", "bool", "dictionary")}
    )


@pytest.mark.parametrize("start", [0, 7, ROWS - 10])
def test_a_slice_of_a_table(start: int) -> None:
    part = table().slice(start, 10)
    result, size = trip(part)
    assert result.equals(part)
    assert size < 10_000
    result, size = trip({"in": [part], "a": "container"})
    assert result["in"][0].equals(part)
    assert size < 10_000


@pytest.mark.parametrize("kind", BIG)
@pytest.mark.parametrize("make", ["table", "batch"])
def test_rows_with_any_type_arrive(kind: str, make: str) -> None:
    columns = {"a": BIG[kind], "b": BIG["int"]}
    rows = pa.table(columns) if make == "table" else pa.record_batch(columns)
    for part in (rows.slice(7, 10), rows.slice(3), rows.slice(5, 0)):
        result, size = trip(part)
        assert type(result) is type(part)
        assert result.equals(part)
        assert result.schema.equals(part.schema, check_metadata=True)
        if part.num_rows <= 10:
            assert size < 8000


def ipc_of(value: Any) -> bool:
    return b"read_table" in serialization.serialize(value).data


def test_small_and_cut_tables_travel_in_arrows_format_and_large_whole_ones_are_not_copied() -> None:
    large = pa.table({"a": np.arange(1_000_000)})
    assert ipc_of(large.slice(10, 10))
    assert ipc_of(large.slice(0, 500_000))
    assert ipc_of(pa.table({"a": range(10)}))
    assert not ipc_of(large)
    assert not ipc_of(large.slice(1))


def test_tables_of_many_small_columns_are_one_buffer() -> None:
    wide = pa.table({f"c{i}": [i, None] for i in range(300)})
    assert len(serialization.serialize(wide).buffers) == 1
    assert trip(wide)[0].equals(wide)


def test_odd_tables_arrive() -> None:
    empty = pa.table({})
    assert trip(empty)[0].equals(empty)
    words = [pa.array(values).dictionary_encode() for values in (["x", "y"], ["z"])]
    chunks = pa.table({"a": pa.chunked_array(words)})
    assert trip(chunks)[0].equals(chunks)
    no_chunks = pa.schema([("a", pa.int64())]).empty_table()
    assert trip(no_chunks)[0].equals(no_chunks)
    batch = pa.record_batch({"a": pa.array([], pa.int64())})
    assert trip(batch)[0].equals(batch)


def test_extension_types_inside_tables_arrive_as_such() -> None:
    array = pa.ExtensionArray.from_storage(Celsius(), pa.array(np.arange(ROWS, dtype=float)))
    for rows in (pa.table({"a": array}), pa.record_batch({"a": array})):
        result, size = trip(rows.slice(3, 4))
        assert result.schema.field("a").type == Celsius()
        assert result.equals(rows.slice(3, 4))
        assert size < 4000


def test_tables_are_read_in_place() -> None:
    serialized = serialization.serialize(pa.table({"a": range(1000)}))
    (buffer,) = [serialization.aligned(bytes(each)) for each in serialized.buffers]
    result, _ = serialization.deserialize(serialized.data, [buffer])
    start = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    address = result.column("a").chunk(0).buffers()[1].address
    assert start <= address < start + len(buffer)


def test_batches_and_chunks() -> None:
    batch = table().to_batches()[0].slice(11, 10)
    result, size = trip(batch)
    assert result.equals(batch)
    assert size < 10_000
    chunks = pa.chunked_array([BIG["string"].slice(i, 5) for i in range(0, ROWS, ROWS // 4)])
    result, size = trip(chunks)
    assert result.equals(chunks)
    assert result.num_chunks == chunks.num_chunks
    assert size < 10_000


def test_metadata_and_types_stay() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False, metadata={"k": "v"})], metadata={"t": "m"})
    part = pa.table({"a": range(ROWS)}, schema=schema).slice(3, 2)
    result, _ = trip(part)
    assert result.schema.equals(schema, check_metadata=True)


def test_extension_types() -> None:
    array = pa.ExtensionArray.from_storage(Celsius(), pa.array(np.arange(ROWS, dtype=float)))
    part = array.slice(17, 10)
    result, size = trip(part)
    assert result.type == Celsius()
    assert result.equals(part)
    assert size < 4000


def test_the_values_of_a_dictionary_stay_as_they_are() -> None:
    part = WORDS.dictionary_encode().slice(10, 3)
    result, _ = trip(part)
    assert result.equals(part)
    assert result.dictionary.equals(part.dictionary)


def test_what_arrow_cannot_copy_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_arrays: Any) -> Any:
        raise pa.ArrowNotImplementedError("no")

    monkeypatch.setattr(pa, "concat_arrays", refuse)
    part = BIG["int"].slice(1, 2)
    assert compact(part) is part


VALUES = st.recursive(
    st.sampled_from(
        [
            pa.int8(),
            pa.int64(),
            pa.float32(),
            pa.bool_(),
            pa.string(),
            pa.large_binary(),
            pa.null(),
            pa.date32(),
        ]
    ),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda t: pa.list_(t, 2)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([(f"f{i}", t) for i, t in enumerate(types)])
        ),
    ),
    max_leaves=4,
)


def value_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of an Arrow type, None among them."""
    if pa.types.is_null(kind):
        return st.none()
    if pa.types.is_struct(kind):
        made = st.fixed_dictionaries(
            {kind.field(i).name: value_of(kind.field(i).type) for i in range(kind.num_fields)}
        )
    elif pa.types.is_fixed_size_list(kind):
        made = st.lists(value_of(kind.value_type), min_size=2, max_size=2)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = st.lists(value_of(kind.value_type), max_size=4)
    elif pa.types.is_boolean(kind):
        made = st.booleans()
    elif pa.types.is_string(kind):
        made = st.text(max_size=5)
    elif pa.types.is_large_binary(kind):
        made = st.binary(max_size=5)
    elif pa.types.is_date(kind):
        made = st.dates()
    elif pa.types.is_floating(kind):
        made = st.floats(width=32, allow_nan=False)
    else:
        made = st.integers(-100, 100)
    return st.none() | made


@given(st.data())
def test_any_slice_of_anything(data: st.DataObject) -> None:
    kind = data.draw(VALUES)
    values = data.draw(st.lists(value_of(kind), max_size=40))
    array = pa.array(values, kind)
    start = data.draw(st.integers(0, len(values)))
    part = array.slice(start, data.draw(st.integers(0, len(values))))
    assert compact(part).equals(part)
    assert compact(part).to_pylist() == part.to_pylist()
    assert pickle.loads(pickle.dumps(compact(part))).equals(part)
    assert trip(part)[0].equals(part)
