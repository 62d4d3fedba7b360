"""TFRecords, compared with protobuf's own idea of an Example."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from runtime.data._block import batch
from runtime.data.io import crc32c, tf_example
from runtime.data.io.errors import FileReadError
from runtime.data.io.tfrecords import TFRecordDatasink, TFRecordDatasource, framed
from tests.runtime.data.io.reading import rows
from tests.runtime.data.io.writing import files, write


@pytest.fixture(scope="module")
def example_class():
    """`tf.train.Example`, from its schema."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, (field, kind, label, type_name) in enumerate(fields, start=1):
            made.field.add(name=field, number=number, type=kind, label=label, type_name=type_name or None)
        return made

    many, one, inner = kinds.LABEL_REPEATED, kinds.LABEL_OPTIONAL, kinds.TYPE_MESSAGE
    message("BytesList", ("value", kinds.TYPE_BYTES, many, ""))
    message("FloatList", ("value", kinds.TYPE_FLOAT, many, ""))
    message("Int64List", ("value", kinds.TYPE_INT64, many, ""))
    lists = [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")]
    message("Feature", *[(name, inner, one, f".t.{kind}") for name, kind in lists])
    features = message("Features", ("feature", inner, many, ".t.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=inner, label=one, type_name=".t.Feature")
    message("Example", ("features", inner, one, ".t.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


def test_protobuf_reads_what_we_write(example_class):
    example = example_class()
    encoded = tf_example.encode({"i": [1, -1, 2**62], "f": [0.5], "b": [b"x", "é"], "one": 3, "none": None})
    example.ParseFromString(encoded)
    feature = example.features.feature
    assert list(feature["i"].int64_list.value) == [1, -1, 2**62]
    assert list(feature["f"].float_list.value) == [0.5]
    assert list(feature["b"].bytes_list.value) == [b"x", "é".encode()]
    assert list(feature["one"].int64_list.value) == [3]
    assert set(feature) == {"i", "f", "b", "one", "none"}


def test_we_read_what_protobuf_writes(example_class):
    example = example_class()
    example.features.feature["i"].int64_list.value.extend([5, -(2**63)])
    example.features.feature["f"].float_list.value.extend([1.5, -2])
    example.features.feature["b"].bytes_list.value.append(b"\0\xff" * 200)
    example.features.feature["none"].SetInParent()
    decoded = tf_example.decode(example.SerializeToString())
    assert decoded == {"i": [5, -(2**63)], "f": [1.5, -2.0], "b": [b"\0\xff" * 200], "none": []}


def test_numbers_that_are_not_packed():
    # Feature.int64_list.value and float_list.value, one field each
    integers = tf_example._tagged(3, b"\x08\x07\x08\x09")
    entry = tf_example._tagged(1, tf_example._tagged(1, b"i") + tf_example._tagged(2, integers))
    assert tf_example.decode(tf_example._tagged(1, entry)) == {"i": [7, 9]}


def test_checksums():
    assert crc32c.slow(b"123456789") == 0xE3069283
    assert crc32c.slow(b"") == 0
    fast = crc32c.fast()
    assert fast is None or fast(b"123456789") == 0xE3069283


def test_round_trip(tmp_path):
    table = pa.table({"i": [1, 2], "l": [[1.5, 2.5], [3.5]], "s": [b"a", b"b"], "n": [None, 4]})
    write(TFRecordDatasink(tmp_path), [table])
    assert files(tmp_path)[0].endswith(".tfrecords")
    assert rows(TFRecordDatasource(tmp_path)) == table.to_pylist()


def test_tensors_of_one_dimension(tmp_path):
    write(TFRecordDatasink(tmp_path), [batch.from_batch({"v": np.array([[1, 2], [3, 4]])})])
    assert rows(TFRecordDatasource(tmp_path)) == [{"v": [1, 2]}, {"v": [3, 4]}]
    with pytest.raises(TypeError, match="more than one dimension"):
        write(TFRecordDatasink(tmp_path), [batch.from_batch({"v": np.zeros((1, 2, 2))})])


def test_damage_is_found(tmp_path):
    good = framed(tf_example.encode({"a": 1}))
    path = tmp_path / "a.tfrecords"
    for data, message in (
        (good + good[:5], "row 1: it is cut off"),
        (good + good[:-1], "row 1: it is cut off"),
        (b"\1" + good[1:], "row 0: .*another checksum"),
        (framed(b"\xff\xff"), "row 0: .*cut off"),
    ):
        path.write_bytes(data)
        with pytest.raises(FileReadError, match=message):
            rows(TFRecordDatasource(path))
