"""Pickles functions, closures and classes: `cloudpickle` plus the serializers of `util.register_serializer`.

Pickling a reference keeps its object until its owner ends, because the engine cannot track the copy. With
RAY_allow_out_of_band_object_ref_serialization=0 in the environment it raises instead.
"""

from __future__ import annotations

import io
from pickle import PicklingError
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
        OufOfBandObjectRefSerializationException: `obj` contains a reference, and the environment forbids that.
    """
    cloud_pickler()(file, protocol or DEFAULT_PROTOCOL, buffer_callback=buffer_callback).dump(obj)


def dumps(obj: Any, protocol: int | None = None, buffer_callback: Any = None) -> bytes:
    """Pickles `obj`. See `dump`."""
    file = io.BytesIO()
    dump(obj, file, protocol, buffer_callback)
    return file.getvalue()


def dumps_debug(obj: Any, *args: Any, **kwargs: Any) -> bytes:
    """As `dumps`; when it fails, the error shows which parts of `obj` cannot be pickled.

    Raises:
        TypeError: `obj`, or something inside it, cannot be pickled.
    """
    try:
        return dumps(obj, *args, **kwargs)
    except (TypeError, PicklingError) as error:
        from runtime.util.check_serialize import inspect_serializability  # for failures only

        report = io.StringIO()
        inspect_serializability(obj, print_file=report)
        raise TypeError(f"cloudpickle.dumps({obj!r}) failed: {error}\n{report.getvalue()}") from error
