"""Encoding of every tagged message, and the table from a request to nothing else: the type says it all."""

from __future__ import annotations

from typing import Any, Union

import msgspec

from . import base, control, node, worker

_MODULES = (base, control, node, worker)


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

encode = _encoder.encode
encode_into = _encoder.encode_into
decode = _decoder.decode
"""Decodes one message of any plane. Raises msgspec.DecodeError when the bytes are no message of this schema."""
