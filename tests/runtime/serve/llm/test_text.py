"""Text that is given out piece by piece is the whole text, up to a stop sequence."""

from __future__ import annotations

from random import Random

import pytest

from runtime.serve.llm._text import TextStream


def decode(tokens: list[int]) -> str:
    """A token is a byte of UTF-8."""
    return bytes(tokens).decode(errors="replace")


def pieces(text: bytes, *stops: str) -> tuple[list[str], TextStream]:
    stream = TextStream(decode, stops)
    return [*(stream.push(byte) for byte in text), stream.finish()], stream


def test_characters_come_whole() -> None:
    parts, _ = pieces("a€b".encode())
    assert parts == ["a", "", "", "€", "b", ""]


def test_what_is_incomplete_at_the_end_is_told_as_it_is() -> None:
    parts, _ = pieces("a€".encode()[:-1])
    assert "".join(parts) == "a\ufffd"


def test_a_stop_sequence_and_what_follows_is_left_out() -> None:
    parts, stream = pieces(b"one, two, three", ", t", "three")
    assert "".join(parts) == "one"
    assert stream.stopped == ", t"


def test_the_beginning_of_a_stop_sequence_is_held_until_it_is_none() -> None:
    parts, stream = pieces(b"abcabx", "abca!", "abd")
    assert parts == ["", "", "", "", "abc", "abx", ""]
    assert stream.stopped is None


def test_the_beginning_of_a_stop_sequence_at_the_end_is_text() -> None:
    parts, _ = pieces(b"word #", "##")
    assert parts[-2:] == ["", "#"]


@pytest.mark.parametrize("seed", range(20))
def test_any_text_up_to_the_first_stop_sequence(seed: int) -> None:
    random = Random(seed)
    text = "".join(random.choices("abé€", k=40))
    stops = ["".join(random.choices("abé", k=random.randint(1, 3))) for _ in range(2)]
    first = min([place for stop in stops if (place := text.find(stop)) >= 0], default=len(text))
    parts, stream = pieces(text.encode(), *stops)
    assert "".join(parts) == text[:first]
    assert (stream.stopped is not None) == (first < len(text))
