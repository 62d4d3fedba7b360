"""HTTP responses of what plain code returns, as Ray Serve's users know them."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

Headers = list[tuple[bytes, bytes]]

TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]
_PLAIN: Headers = [(b"content-type", b"text/plain")]
_JSON: Headers = [(b"content-type", b"application/json")]


_BAD_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def sendable(status: Any, headers: Iterable[Any]) -> tuple[int, Headers]:
    """The status and the headers of a response of the user's code, checked: what HTTP cannot have would cost the client
    its connection, and what the caller cannot read would cost all callers theirs.

    Raises:
        TypeError: something has a wrong type.
        ValueError: no such status, or a header with characters that may not be there.
    """
    if not isinstance(status, int):
        raise TypeError(f"The status of a response must be an integer, not {status!r}.")
    if not 200 <= status <= 599:
        raise ValueError(f"The status of a response must be from 200 to 599, not {status}.")
    found = []
    for name, value in headers:
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise TypeError(f"Name and value of a response header must be bytes, not {name!r}: {value!r}.")
        if not name or _BAD_NAME.search(name) or _BAD_VALUE.search(value):
            raise ValueError(f"HTTP cannot have the response header {name!r}: {value!r}.")
        found.append((name, value))
    return int(status), found


def response_of(value: Any) -> tuple[Headers, bytes]:
    """Headers and body for a value: text for a string, as it is for bytes, nothing for None, else JSON.

    Raises:
        TypeError: JSON cannot have it.
    """
    if isinstance(value, str):
        body, headers = value.encode(), TEXT
    elif value is None:
        body, headers = b"", _PLAIN
    elif isinstance(value, bytes):
        body, headers = value, _PLAIN
    else:
        body, headers = json.dumps(value, default=_jsonable, separators=(",", ":")).encode(), _JSON
    return [*headers, (b"content-length", str(len(body)).encode())], body


def chunk_of(item: Any) -> bytes | bytearray | memoryview:
    """What one item of a generator adds to the body of a response."""
    if isinstance(item, bytes | bytearray | memoryview):
        return item
    return item.encode() if isinstance(item, str) else response_of(item)[1]


def _jsonable(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return value.tolist()
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return value.to_dict(orient="records")
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Exception | pathlib.PurePath | uuid.UUID):
        return str(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    if hasattr(value, "__dict__"):
        return vars(value)
    raise TypeError(f"A response of type {type(value).__name__} cannot be written as JSON.")
