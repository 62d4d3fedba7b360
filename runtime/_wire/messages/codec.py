"""Encoding of every tagged message, and the table from a request to nothing else: the type says it all."""

from __future__ import annotations

from typing import Any, Union

import msgspec

from . import base, control, groups, libraries, node, worker

_MODULES = (base, groups, control, node, libraries, worker)


def _resolve_annotations(module: Any) -> None:
    """Evaluates each annotation of a module's messages once. msgspec would compile that of each field anew, which every
    process would pay for at its start."""
    names = vars(module)
    types: dict[str, Any] = {}
    for cls in tuple(names.values()):
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct) and cls.__module__ == module.__name__:
            for field, text in cls.__annotations__.items():
                if text not in types:
                    types[text] = eval(text, names)
                cls.__annotations__[field] = types[text]


def _tagged(module: Any) -> list[type[base.Message]]:
    return [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type)
        and issubclass(cls, base.Message)
        and cls.__module__ == module.__name__
        and cls.__struct_config__.tag is not None
    ]


for _module in _MODULES:
    _resolve_annotations(_module)
ALL: tuple[type[base.Message], ...] = tuple(cls for module in _MODULES for cls in _tagged(module))
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[base.Message] = msgspec.msgpack.Decoder(Union[ALL])

encode_into = _encoder.encode_into
"""Appends a message to a bytearray. When it raises, the bytes that it has written so far stay there."""

decode = _decoder.decode
"""Decodes one message of any plane. Raises msgspec.DecodeError when the bytes are no message of this schema."""


def encode(message: base.Message | base.Request[Any]) -> bytes:
    """Encodes one message. Texts are sent as `escaped` writes them.

    Raises:
        TypeError, OverflowError: a field holds what the wire does not carry.
    """
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(escaped(message))


def escaped(message: base.Message | base.Request[Any]) -> Any:
    """The same message with lone surrogates as backslash escapes. Python uses them for bytes that are not UTF-8, in
    arguments and file names for instance, and UTF-8 cannot carry them."""
    plain = msgspec.to_builtins(message, builtin_types=(bytes, bytearray, memoryview))
    return msgspec.convert(_escape(plain), type(message))


def _escape(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escape(key): _escape(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escape(item) for item in value]
    return value
