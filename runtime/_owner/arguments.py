"""Arguments of a call: packed by the caller, rebuilt by the executor. References at top level become values; nested
ones stay references."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from runtime._ownership.borrowing import Borrowing
from runtime._ownership.failures import ArgumentFailed
from runtime._ownership.records import (
    INLINE,
    INLINE_ERROR,
    NO_ARGUMENTS,
    STORED,
    Entry,
    PackedArguments,
    hold_all,
)
from runtime._ownership.released import Released
from runtime._wire import serialization
from runtime._wire.messages.worker import Argument, ObjectLost, Push, Value
from runtime.exceptions import ObjectLostError, RayTaskError, UnserializableException
from runtime.object_ref import ObjectRef

from .links import Links
from .objects import INLINE_BYTES, Objects
from .reading import Reader
from .store import Store
from .unpickling import unpickle, unpickle_all

_SMALL = frozenset({type(None), bool, int, float, complex, ObjectRef})


class ArgumentPacker:
    """The caller's side: arguments on their way."""

    def __init__(self, links: Links, objects: Objects, store: Store) -> None:
        self._links = links
        self._objects = objects
        self._store = store

    def pack(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PackedArguments:
        """Packs the arguments of a call of `name`. Large ones go to the object store, as if the user had `put` them.
        `PackedArguments` in place of `args`, from a remote driver, are passed on.

        Raises:
            TypeError: an argument cannot be pickled.
        """
        if not args and not kwargs:
            return NO_ARGUMENTS
        if isinstance(args, PackedArguments):
            return args
        try:
            return self._pack(args, kwargs)
        except TypeError as error:
            for value in (*args, *kwargs.values()):
                _check(value, name)
            raise serialization.not_serializable(
                f"the arguments for a task or actor {name}", error
            ) from error

    def _pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PackedArguments:
        entries: list[Entry] = []
        places: list[int | str] = []
        plain, plain_kwargs = _split(args, kwargs, entries, places)
        serialized = serialization.serialize((plain, plain_kwargs) if plain_kwargs else (plain,))
        if serialized.size_bytes > INLINE_BYTES:
            # They keep what they refer to until it is held below.
            args = tuple(map(self._put_if_large, args))
            kwargs = {key: self._put_if_large(value) for key, value in kwargs.items()}
            entries, places = [], []
            plain, plain_kwargs = _split(args, kwargs, entries, places)
            serialized = serialization.serialize((plain, plain_kwargs) if plain_kwargs else (plain,))
        # Without `nested`: the receiver makes the references anyway, before anything else.
        value = Value(INLINE, serialized.data, tuple(map(bytes, serialized.buffers)))
        held = entries + serialized.references
        with self._links.lock:
            hold_all(held)
            if held:
                self._store.say_all()
        return PackedArguments(value, entries, places, held)

    def _put_if_large(self, value: Any) -> Any:
        """The value, or a reference to it in the object store."""
        if type(value) in _SMALL:
            return value
        serialized = serialization.serialize(value)
        if serialized.size_bytes <= INLINE_BYTES // 4:
            return value
        return self._objects.put_serialized(serialized)

    def not_computed(self, failure: ArgumentFailed) -> Value:
        """The error of a call that cannot run because of what one of its arguments holds."""
        facts = _NotComputed(failure.error, failure.function_name, self._links.session.node_host)
        return Value(INLINE_ERROR, pickle.dumps(facts))


def _check(value: Any, name: str) -> None:
    try:
        serialization.serialize(value)
    except TypeError as error:
        what = f"the argument {value!r} for a task or actor {name}"
        raise serialization.not_serializable(what, error) from error


def _split(
    args: Sequence[Any], kwargs: Mapping[str, Any], entries: list[Entry], places: list[int | str]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments with None in place of the references, which `entries` and `places` get, those of `args` first."""
    positions = [position for position, arg in enumerate(args) if arg.__class__ is ObjectRef]
    if positions:
        plain = list(args)
        for position in positions:
            entries.append(plain[position]._entry)
            plain[position] = None
        places += positions
        args = tuple(plain)
    for arg in kwargs.values():
        if arg.__class__ is ObjectRef:
            named = dict(kwargs)
            for keyword, value in kwargs.items():
                if value.__class__ is ObjectRef:
                    entries.append(value._entry)
                    places.append(keyword)
                    named[keyword] = None
            kwargs = named
            break
    return args, kwargs


class _NotComputed:
    """Pickles as the error of a call that cannot run because of an argument. To rebuild the argument's error runs the
    user's code, and the caller holds the engine's lock: its readers do that."""

    def __init__(self, error: bytes, function_name: str, host: str) -> None:
        self._facts = error, function_name, os.getpid(), host

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_argument, self._facts


def _of_argument(error: bytes, function_name: str, pid: int, host: str) -> RayTaskError:
    try:
        raised = pickle.loads(error)
    except Exception as problem:
        text = f"the error of an argument cannot be rebuilt here: {type(problem).__name__}: {problem}"
        raised = UnserializableException(text)
    return RayTaskError.from_argument(raised, function_name, pid, host)


class LostArguments(Exception):
    """No copy of some arguments was found. `lost`: which ones, and where they were looked for."""

    def __init__(self, lost: list[ObjectLost]) -> None:
        super().__init__(lost)
        self.lost = lost


class ArgumentReader:
    """The executor's side: arguments that have arrived."""

    def __init__(
        self, links: Links, released: Released, objects: Objects, borrowing: Borrowing, reader: Reader
    ) -> None:
        self._links = links
        self._released = released
        self._objects = objects
        self._borrowing = borrowing
        self._reader = reader

    def unpack(self, push: Push, waits: bool = True) -> tuple[Sequence[Any], dict[str, Any], list[Entry]]:
        """Rebuilds the arguments. Returns them with the references made on the way.

        Args:
            waits: has lost arguments made again, and waits for them.

        Raises:
            Exception: what an argument's object holds instead of a value; RaySystemError if it cannot be rebuilt.
            LostArguments: not `waits`, and arguments are lost. The others are on this node then.
        """
        packed = push.args
        if packed is None:
            return (), {}, []
        parts, made = unpickle(packed.data, list(map(serialization.aligned, packed.buffers)))
        args = parts[0]
        kwargs: dict[str, Any] = parts[1] if len(parts) > 1 else {}
        inline = push.inline
        if inline is not None:
            values, inside = unpickle_all(inline.data)
            made += inside
            if len(values) == len(args):
                args = values
            else:
                args = list(args)
                for position, value in zip(inline.positions, values, strict=True):
                    args[position] = value
        if push.refs:
            args = list(args)
            lost: list[ObjectLost] = []
            for ref in push.refs:
                try:
                    loaded = self._load(ref, made, waits)
                except LostArguments as error:
                    lost += error.lost
                    continue
                if ref.position >= 0:
                    args[ref.position] = loaded
                else:
                    kwargs[ref.keyword] = loaded
            if lost:
                raise LostArguments(lost)
        return args, kwargs, made

    def _load(self, ref: Argument, made: list[Entry], waits: bool) -> Any:
        value = ref.value
        if value is not None and value.kind <= INLINE_ERROR and not value.nested:
            return unpickle(value.data, list(map(serialization.aligned, value.buffers)))[0]
        if value is not None and not value.nested:
            # The caller holds the object until we answer: no borrow of our own is needed to read it.
            entry = Entry(ref.object_id, ref.owner, False, released=self._released)
            entry.value = value
            return self._reader.load(entry, None) if waits else self._load_now(entry, value)
        with self._links.lock:
            entry = self._borrowing.borrowed_entry(ref.object_id, ref.owner)
            holder = self._objects.new_ref(entry)
            known = entry.value
            if value is not None and (known is None or (known.kind == STORED and entry.owner and not waits)):
                entry.value = value  # not an older one, which may name copies that are lost
            made.append(entry)
        current = entry.value
        if waits or current is None:
            return self._reader.get_one(holder, None)
        return self._load_now(entry, current)

    def _load_now(self, entry: Entry, value: Value) -> Any:
        try:
            return self._reader.load_value(entry, value, None)
        except ObjectLostError:
            if value.kind != STORED:
                raise
            raise LostArguments([ObjectLost(entry.object_id, list(value.locations))]) from None
