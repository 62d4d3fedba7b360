"""The pickling of functions, closures and classes that programs may use for themselves: `cloudpickle`, with what
`util.register_serializer` added.

References may be pickled too: the object is then kept for ever, as nobody can tell how long the copy lives. Where the
environment has RAY_allow_out_of_band_object_ref_serialization=0, that raises instead.
"""

from __future__ import annotations

import io
from typing import IO, Any

from cloudpickle import DEFAULT_PROTOCOL as DEFAULT_PROTOCOL
from cloudpickle import CloudPickler as CloudPickler
from cloudpickle import Pickler as Pickler
from cloudpickle import load as load
from cloudpickle import loads as loads
from cloudpickle import register_pickle_by_value as register_pickle_by_value
from cloudpickle import unregister_pickle_by_value as unregister_pickle_by_value

from runtime._wire.serialization import cloud_pickler


def dump(obj: Any, file: IO[bytes], protocol: int | None = None, buffer_callback: Any = None) -> None:
    """Pickles `obj` into `file`.

    Raises:
        OufOfBandObjectRefSerializationException: there is a reference in it, and that is forbidden.
    """
    cloud_pickler()(file, protocol or DEFAULT_PROTOCOL, buffer_callback=buffer_callback).dump(obj)


def dumps(obj: Any, protocol: int | None = None, buffer_callback: Any = None) -> bytes:
    """Pickles `obj`. See `dump`."""
    file = io.BytesIO()
    dump(obj, file, protocol, buffer_callback)
    return file.getvalue()
