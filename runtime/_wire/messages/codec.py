"""Encoding of every tagged message, and the table from a request to nothing else: the type says it all."""

from __future__ import annotations

from typing import Any, Union

import msgspec

from . import base, control, node, worker


def _tagged(module: Any) -> list[type[base.Message]]:
    return [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type)
        and issubclass(cls, base.Message)
        and cls.__module__ == module.__name__
        and cls.__struct_config__.tag is not None
    ]


ALL: tuple[type[base.Message], ...] = tuple(
    cls for module in (base, control, node, worker) for cls in _tagged(module)
)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[base.Message] = msgspec.msgpack.Decoder(Union[ALL])

encode = _encoder.encode
encode_into = _encoder.encode_into
decode = _decoder.decode
"""Decodes one message of any plane. Raises msgspec.DecodeError when the bytes are no message of this schema."""
