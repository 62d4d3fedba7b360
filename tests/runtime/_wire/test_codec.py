"""Every message of every plane survives the wire, and its tag is its own."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorReply, Message, Ok, Request, WorkerAddress
from runtime._wire.messages.worker import Hello

messages = pytest.mark.parametrize("cls", codec.ALL, ids=lambda cls: cls.__name__)
DEPTH = 4


def values(hint: Any, depth: int = DEPTH) -> st.SearchStrategy[Any]:
    """Any value of a type hint of the schema."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return st.none()
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(-(2**63), 2**64 - 1)
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is str:
        return st.text(max_size=5)
    if hint is bytes:
        return st.binary(max_size=5)
    if hint is type(None):
        return st.none()
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in arguments if depth > 0 or not _is_struct(kind)]
        return st.one_of(*(values(kind, depth) for kind in kinds))
    if origin is list:
        return st.lists(values(arguments[0], depth - 1), max_size=2 if depth > 0 else 0)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0], depth - 1), max_size=2 if depth > 0 else 0).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(kind, depth - 1) for kind in arguments))
    if origin is dict:
        key, value = arguments
        return st.dictionaries(values(key), values(value, depth - 1), max_size=2)
    if _is_struct(hint):
        return instances(hint, depth - 1)
    raise AssertionError(f"no way to make a {hint}")


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def instances(cls: type[Any], depth: int = DEPTH) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{name: values(hints[name], depth) for name in cls.__struct_fields__})


@messages
@settings(max_examples=10)
@given(data=st.data())
def test_what_is_sent_is_what_arrives(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(instances(cls))
    decoded = codec.decode(codec.encode(message))
    assert type(decoded) is cls
    assert decoded == message


@messages
def test_messages_are_frozen_tagged_and_positional(cls: type[Message]) -> None:
    config = cls.__struct_config__
    assert config.frozen
    assert config.array_like
    assert isinstance(config.tag, int)


def test_tags_are_unique() -> None:
    tags: dict[Any, str] = {}
    for cls in codec.ALL:
        tag = cls.__struct_config__.tag
        assert tag not in tags, f"{cls.__name__} and {tags.get(tag)} share tag {tag}"
        tags[tag] = cls.__name__


@messages
def test_a_request_says_what_answers_it(cls: type[Message]) -> None:
    for base in getattr(cls, "__orig_bases__", ()):
        if typing.get_origin(base) is Request:
            [answer] = typing.get_args(base)
            assert answer in codec.ALL


@messages
def test_a_field_appended_by_a_newer_peer_is_ignored(cls: type[Message]) -> None:
    parts = msgspec.msgpack.decode(codec.encode(_plain(cls)))
    extended = msgspec.msgpack.encode([*parts, "a field of tomorrow"])
    assert type(codec.decode(extended)) is cls


def _plain(cls: type[Any]) -> Any:
    hints = typing.get_type_hints(cls)
    return cls(*(_zero(hints[name]) for name in cls.__struct_fields__))


def _zero(hint: Any) -> Any:
    if _is_struct(hint):
        return _plain(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return None
    if origin is tuple and Ellipsis not in typing.get_args(hint):
        return tuple(_zero(kind) for kind in typing.get_args(hint))
    return (origin or hint)()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"not a message",
        b"\x80\x04K\x01.",
        msgspec.msgpack.encode([99_999]),
        msgspec.msgpack.encode({}),
    ],
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.decode(payload)


def test_wrong_types_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        codec.decode(msgspec.msgpack.encode([2, 7, 8]))


def test_a_view_is_decoded_like_bytes() -> None:
    message = ErrorReply("invalid", "why")
    assert codec.decode(memoryview(codec.encode(message))) == message


def test_encoding_behind_what_is_there() -> None:
    out = bytearray(b"head")
    codec.encode_into(Ok(), out, -1)
    assert out.startswith(b"head")
    assert codec.decode(bytes(out[4:])) == Ok()


def test_addresses_are_no_messages_of_their_own() -> None:
    assert WorkerAddress not in codec.ALL


def test_lone_surrogates_are_escaped_and_nothing_else_changes() -> None:
    address = WorkerAddress(b"\xff", b"\x80", "/tmp/\udc80", "host", 7)
    sent = codec.decode(codec.encode(address_book := Hello(address, b"\xff")))
    assert sent == msgspec.structs.replace(
        address_book, address=msgspec.structs.replace(address, unix_path="/tmp/\\udc80")
    )


def test_what_the_wire_does_not_carry_is_refused() -> None:
    with pytest.raises(TypeError):
        codec.encode(ErrorReply("kind", object()))  # type: ignore[arg-type]
