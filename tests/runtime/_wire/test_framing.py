"""Frames come out of a byte stream however it is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._wire.framing import (
    HEADER,
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    ONE_WAY,
    REPLY_BIT,
    FrameDecoder,
    FrameError,
    encode_frame,
)

FRAMES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=50)), max_size=8)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(FRAMES, st.lists(st.integers(0, 1000), max_size=20))
def test_any_cut_gives_the_same_frames(frames: list[tuple[int, bytes]], places: list[int]) -> None:
    stream = b"".join(encode_frame(payload, correlation) for correlation, payload in frames)
    decoder = FrameDecoder()
    out = [frame for piece in cut(stream, places) for frame in decoder.feed(piece)]
    assert out == frames


@given(FRAMES)
def test_byte_by_byte(frames: list[tuple[int, bytes]]) -> None:
    stream = b"".join(encode_frame(payload, correlation) for correlation, payload in frames)
    decoder = FrameDecoder()
    out = [frame for byte in stream for frame in decoder.feed(bytes([byte]))]
    assert out == frames


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer(kind: type) -> None:
    assert list(FrameDecoder().feed(kind(encode_frame(b"hello", 7)))) == [(7, b"hello")]


def test_a_frame_is_a_header_and_its_payload() -> None:
    assert encode_frame(b"abc", 5) == HEADER.pack(3, 5) + b"abc"
    assert len(encode_frame(b"")) == HEADER_BYTES


def test_one_way_is_correlation_zero() -> None:
    assert list(FrameDecoder().feed(encode_frame(b"x"))) == [(ONE_WAY, b"x")]


def test_a_reply_carries_the_top_bit() -> None:
    [(correlation, _)] = FrameDecoder().feed(encode_frame(b"x", 9 | REPLY_BIT))
    assert correlation & REPLY_BIT
    assert correlation & ~REPLY_BIT == 9


def test_an_incomplete_frame_is_not_a_frame() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(b"payload")
    assert list(decoder.feed(frame[:-1])) == []
    assert list(decoder.feed(frame[-1:])) == [(0, b"payload")]


def test_payloads_outlive_the_next_feed() -> None:
    decoder = FrameDecoder()
    [(_, first)] = decoder.feed(encode_frame(b"first"))
    list(decoder.feed(encode_frame(b"other")))
    assert first == b"first"


def test_a_frame_over_the_limit_is_refused_before_it_came() -> None:
    with pytest.raises(FrameError, match="over the limit of 10"):
        list(FrameDecoder(max_frame_bytes=10).feed(HEADER.pack(11, 0)))


def test_a_frame_at_the_limit_is_fine() -> None:
    assert list(FrameDecoder(max_frame_bytes=3).feed(encode_frame(b"abc"))) == [(0, b"abc")]


def test_random_bytes_are_refused_or_wait_for_more() -> None:
    with pytest.raises(FrameError):
        list(FrameDecoder().feed(b"GET / HTTP/1.1\r\n\r\n"))
    assert int.from_bytes(b"GET ", "little") > MAX_FRAME_BYTES
