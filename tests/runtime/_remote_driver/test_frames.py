"""The bytes of an envelope, which are those of protobuf, and relayed frames."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from runtime._remote_driver import frames

_FIELD = descriptor_pb2.FieldDescriptorProto


def _envelope() -> type:
    file = descriptor_pb2.FileDescriptorProto(name="envelope.proto", package="test", syntax="proto3")
    message = file.message_type.add(name="Envelope")
    message.field.add(name="bodies", number=1, label=_FIELD.LABEL_REPEATED, type=_FIELD.TYPE_BYTES)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Envelope"))


Envelope = _envelope()


@given(st.lists(st.binary(max_size=300)))
def test_protobuf_reads_and_writes_the_same_envelopes(bodies: list[bytes]) -> None:
    data = frames.encode(bodies)
    assert data == Envelope(bodies=bodies).SerializeToString()
    assert frames.decode(data) == bodies


def test_long_bodies() -> None:
    bodies = [b"a" * size for size in (127, 128, 1 << 14, (1 << 21) + 1)]
    assert frames.encode(bodies) == Envelope(bodies=bodies).SerializeToString()
    assert frames.decode(frames.encode(bodies)) == bodies


def test_joined_envelopes_are_one() -> None:
    assert frames.decode(frames.encode([b"a"]) + frames.encode([b"b", b""])) == [b"a", b"b", b""]


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x12\x00", b"\x0a" + b"\xff" * 9])
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(frames.EnvelopeError):
        frames.decode(data)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.binary(max_size=40))), st.integers(1, 7))
def test_relayed_frames_survive_any_cutting(sent: list[tuple[int, int, bytes]], step: int) -> None:
    data = b"".join(frames.relayed(*frame) for frame in sent)
    decoder = frames.RelayDecoder()
    got = [frame for at in range(0, len(data), step) for frame in decoder.feed(data[at : at + step])]
    assert got == sent
