"""Hashes of rows that are the same in every process and on every machine.

Equal values of a column's type hash alike, whatever the chunks and offsets; so do integers of different widths, the
zeros 0.0 and -0.0, all NaNs, and a string with the dictionary entry that stands for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x6E756C6C6E756C6C)
_SEED = np.uint64(0x9E3779B97F4A7C15)
_LONG = 128
"""Bytes from which on a string is hashed by itself rather than word by word beside the others."""
_WORD = 8


def mix(values: Hashes) -> Hashes:
    """The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014)."""
    mixed = values + _SEED
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def hash_rows(table: pa.Table, keys: Sequence[str]) -> Hashes:
    """One hash for each row, of the values of its key columns."""
    hashes = np.zeros(table.num_rows, np.uint64)
    for key in keys:
        column = hash_column(table.column(key))
        hashes = column if len(keys) == 1 else mix(hashes * np.uint64(31) + column)
    return hashes


def hash_column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """One hash for each value."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return hash_column(column.chunk(0))
        return np.concatenate([np.empty(0, np.uint64), *(hash_column(chunk) for chunk in column.chunks)])
    hashes = _hash_values(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_values(array: pa.Array) -> Hashes:
    """Hashes, of which those of nulls mean nothing."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _hash_values(array.storage)
    if types.is_null(kind):
        return np.full(len(array), _NULL)
    if types.is_boolean(kind):
        return mix(array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64))
    if types.is_floating(kind):
        return mix(_float_bits(array))
    if types.is_dictionary(kind):
        entries = hash_column(array.dictionary)
        return entries[array.indices.fill_null(0).to_numpy()] if len(entries) else np.full(len(array), _NULL)
    if types.is_decimal(kind):
        return _hash_words(array, kind.bit_width // 64)
    if types.is_interval(kind):
        return _hash_words(array, kind.bit_width // 64)
    if types.is_primitive(kind):
        return mix(_integers(array))
    if _is_text(kind):
        large = pa.large_binary()
        return _hash_bytes(array.cast(large) if not types.is_large_string(kind) else array.view(large))
    if types.is_struct(kind):
        hashes = np.full(len(array), _SEED)
        for index in range(kind.num_fields):
            hashes = mix(hashes * np.uint64(31) + hash_column(array.field(index)))
        return hashes
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        return _combine(
            hash_column(values), np.arange(0, (len(array) + 1) * size, size or 1)[: len(array) + 1], size
        )
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values if not types.is_map(kind) else _entries(array)
        return _combine(hash_column(values.slice(offsets[0], offsets[-1] - offsets[0])), offsets - offsets[0])
    if types.is_run_end_encoded(kind):
        return hash_column(pc.run_end_decode(array))
    raise TypeError(f"rows cannot be hashed by a column of type {kind}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
    )


def _entries(array: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])


def _float_bits(array: pa.Array) -> Hashes:
    if types.is_float16(array.type):
        values = array.fill_null(np.float16(0)).to_numpy().astype(np.float64)
    else:
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy()
    values = values + 0.0  # of -0.0 makes 0.0
    values[np.isnan(values)] = np.nan
    bits: Hashes = values.view(np.uint64)
    return bits


def _integers(array: pa.Array) -> Hashes:
    """Integers, and what is stored as integers: dates, times, timestamps, durations."""
    width = array.type.bit_width
    signed = not types.is_unsigned_integer(array.type)
    dtype = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    values = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
    return values.astype(np.int64).view(np.uint64) if signed else values.astype(np.uint64)


def _hash_words(array: pa.Array, words: int) -> Hashes:
    """Values of one or more words of 64 bits, or of half a word."""
    size = array.type.bit_width // 8
    if words == 0:
        values = np.frombuffer(array.buffers()[1], np.int32, len(array), array.offset * size)
        return mix(values.astype(np.int64).view(np.uint64))
    buffer = np.frombuffer(array.buffers()[1], np.uint64, len(array) * words, array.offset * size)
    columns = buffer.reshape(len(array), words)
    hashes = mix(columns[:, 0])
    for index in range(1, words):
        hashes = mix(hashes * np.uint64(31) + columns[:, index])
    return hashes


def _hash_bytes(array: pa.LargeBinaryArray) -> Hashes:
    """Strings: word by word, all at once; long ones one by one."""
    count = len(array)
    _, offset_buffer, data = array.buffers()
    if count == 0:
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offset_buffer, np.int64, count + 1, array.offset * 8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = mix(lengths.view(np.uint64))
    if data is None or not lengths.any():
        return hashes
    raw = np.frombuffer(data, np.uint8)
    words = _unaligned_words(raw)
    active = np.flatnonzero((lengths > 0) & (lengths < _LONG))
    position = 0
    while len(active):
        begin = starts[active] + position
        left = lengths[active] - position
        # The last words of the buffer cannot be read whole from where they begin: read earlier, shift.
        late = np.maximum(begin - (len(raw) - _WORD), 0) if len(raw) >= _WORD else np.zeros_like(begin)
        word = words[begin - late] >> (late * 8).view(np.uint64)
        bits = np.minimum(left, _WORD) * 8
        word &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (64 - bits).view(np.uint64)
        hashes[active] = mix(hashes[active] * np.uint64(31) + word)
        position += _WORD
        active = active[left > _WORD]
    for row in np.flatnonzero(lengths >= _LONG):
        text = raw[starts[row] : starts[row] + lengths[row]].data
        hashes[row] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return hashes


def _unaligned_words(raw: npt.NDArray[np.uint8]) -> Hashes:
    """Element i is the little-endian word of the bytes from i on."""
    if len(raw) < _WORD:
        raw = np.concatenate([raw, np.zeros(2 * _WORD, np.uint8)])
    words: Hashes = np.lib.stride_tricks.as_strided(
        raw[: len(raw) // 8 * 8].view("<u8"), (len(raw) - _WORD + 1,), (1,)
    )
    return words


def _combine(values: Hashes, offsets: npt.NDArray[np.int64], size: int | None = None) -> Hashes:
    """Hashes of lists from those of their elements and the lists' borders."""
    lengths = np.diff(offsets) if size is None else np.full(len(offsets) - 1, size, np.int64)
    hashes = mix(lengths.astype(np.uint64))
    if not len(values):
        return hashes
    places = np.arange(len(values)) - np.repeat(offsets[:-1], lengths)
    mixed = mix(values + places.astype(np.uint64) * _SEED)
    some = lengths > 0
    hashes[some] += np.add.reduceat(mixed, offsets[:-1][some])
    return mix(hashes)
