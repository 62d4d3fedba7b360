"""Checkpoints: objects with named components, each saved in a folder of its own."""

from __future__ import annotations

import abc
import contextlib
import io
import json
import os
import pathlib
import pickle
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import msgspec
import numpy as np

import runtime
from runtime import cloudpickle
from runtime.train import Checkpoint
from runtime.train._run import files

CHECKPOINT_VERSION = "2.1"
COMPONENT_RL_MODULE = "rl_module"
_STATE_KINDS = (".pkl", ".msgpack")
_ARRAY = 1  # the code of arrays in msgpack

Path = str | os.PathLike[str]
StateDict = dict[str, Any]


class Checkpointable(abc.ABC):
    """An object that can be saved to a folder and made again from it.

    The folder has `metadata.json`, `class_and_ctor_args.pkl` (how to make the object), its state in
    `<STATE_FILE_NAME>.pkl`, and one folder per component. A component is a `Checkpointable` or an actor of one. Any
    component's folder is a checkpoint, too, so that a module can be loaded from an algorithm's checkpoint.
    """

    STATE_FILE_NAME = "state"
    CLASS_AND_CTOR_ARGS_FILE_NAME = "class_and_ctor_args.pkl"
    METADATA_FILE_NAME = "metadata.json"

    # ---- what classes define

    @abc.abstractmethod
    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> StateDict:
        """The state as plain data: NumPy arrays instead of tensors.

        Args:
            components: names, or paths such as "learner/rl_module", of the components that are wanted; None: all.
            not_components: those that are not wanted.
        """

    @abc.abstractmethod
    def set_state(self, state: StateDict) -> None:
        """Sets what is in `state`; what is missing there stays."""

    @abc.abstractmethod
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that make an equal object: `type(self)(*args, **kwargs)`."""

    def get_metadata(self) -> dict[str, Any]:
        """What `metadata.json` says."""
        return {
            "class_and_ctor_args_file": self.CLASS_AND_CTOR_ARGS_FILE_NAME,
            "state_file": self.STATE_FILE_NAME,
            "checkpoint_version": CHECKPOINT_VERSION,
            "ray_version": runtime.__version__,
        }

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Pairs of name and component. Names have no "/"."""
        return []

    # ---- saving

    def save_to_path(
        self,
        path: Path | None = None,
        *,
        state: StateDict | None = None,
        filesystem: Any = None,
        use_msgpack: bool = False,
    ) -> str:
        """Saves everything in a folder, which is made.

        Args:
            path: a local path, a URI such as "s3://bucket/folder", or a path on `filesystem`. None: a new folder for
                temporary files.
            state: what to save instead of `get_state()`; states of components are under their names.
            filesystem: of fsspec or `pyarrow.fs`.
            use_msgpack: the state is saved with msgpack, not pickle; tuples become lists.

        Returns:
            The path.

        Raises:
            ImportError: the URI's file system needs a package that is not installed.
            OSError: a file cannot be written. What the folder had is still there, and nothing of the new checkpoint.
        """
        if path is None:
            path = tempfile.mkdtemp(prefix="checkpoint-")
        place = os.fspath(path)
        if files.is_local(place, filesystem):
            folder = files.local_path(place)
            with _draft_of(folder) as draft:
                self._write(draft, state, use_msgpack)
            return folder if "://" not in place else place
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            self._write(folder, state, use_msgpack)
            target, base = files.resolve(place, filesystem)
            for name, content in _contents(folder).items():
                target.write(f"{base}/{name}", content, f"{base}/.draft-{uuid.uuid4().hex}")
        return place

    def _write(self, folder: str, state: StateDict | None, use_msgpack: bool) -> None:
        os.makedirs(folder, exist_ok=True)
        components = self.get_checkpointable_components()
        names = [name for name, _ in components]
        own = self.get_state(not_components=names) if state is None else dict(state)
        parts = {name: own.pop(name, None) for name in names}
        kind = "msgpack" if use_msgpack else "pkl"
        with open(os.path.join(folder, f"{self.STATE_FILE_NAME}.{kind}"), "wb") as file:
            file.write(_packed(own) if use_msgpack else cloudpickle.dumps(own))
        with open(os.path.join(folder, self.METADATA_FILE_NAME), "w", encoding="utf-8") as file:
            json.dump(self.get_metadata(), file)
        with open(os.path.join(folder, self.CLASS_AND_CTOR_ARGS_FILE_NAME), "wb") as file:
            cloudpickle.dump(
                {"class": type(self), "ctor_args_and_kwargs": self.get_ctor_args_and_kwargs()}, file
            )
        for name, component in components:
            inner = os.path.join(folder, name)
            if isinstance(component, Checkpointable):
                component._write(inner, parts[name], use_msgpack)
            else:
                packed = runtime.get(component.packed_checkpoint.remote(parts[name], use_msgpack))
                _unpack(packed, inner)

    def packed_checkpoint(
        self, state: StateDict | None = None, use_msgpack: bool = False
    ) -> dict[str, bytes]:
        """The files of a checkpoint by their relative paths: how an actor's checkpoint gets to another node."""
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            self._write(folder, state, use_msgpack)
            return _contents(folder)

    # ---- restoring

    def restore_from_path(
        self, path: Any, *, component: str | None = None, filesystem: Any = None, **kwargs: Any
    ) -> None:
        """Sets the state from a checkpoint.

        Args:
            path: as of `save_to_path`, or a `Checkpoint`.
            component: the path of a component of this object, such as "learner_group/learner/rl_module/p0": the
                checkpoint is one of that component, and only it is restored.
            filesystem: of fsspec or `pyarrow.fs`.

        Raises:
            FileNotFoundError: there is no checkpoint.
            KeyError: there is no such component.
        """
        with _local(path, filesystem) as folder:
            self._read(folder, component, **kwargs)

    def _read(self, folder: str, component: str | None = None, **kwargs: Any) -> None:
        components = dict(self.get_checkpointable_components())
        if component is not None:
            name, _, below = component.partition("/")
            if name not in components:
                known = ", ".join(sorted(components)) or "none"
                raise KeyError(f"{type(self).__name__} has no component {name!r}; it has {known}.")
            self._read_component(components[name], folder, below or None, **kwargs)
            return
        self.set_state(_state(folder, self.STATE_FILE_NAME))
        for name, each in dict(self.get_checkpointable_components()).items():  # the state may have added some
            inner = os.path.join(folder, name)
            if os.path.isdir(inner):
                self._read_component(each, inner, None, **kwargs)

    @staticmethod
    def _read_component(component: Any, folder: str, below: str | None, **kwargs: Any) -> None:
        if isinstance(component, Checkpointable):
            component._read(folder, below, **kwargs)
        else:
            runtime.get(component.restore_packed_checkpoint.remote(_contents(folder), below))

    def restore_packed_checkpoint(self, packed: dict[str, bytes], component: str | None = None) -> None:
        """Sets the state from what `packed_checkpoint` gave."""
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            _unpack(packed, folder)
            self._read(folder, component)

    @classmethod
    def from_checkpoint(cls, path: Any, filesystem: Any = None, **kwargs: Any) -> Self:
        """Makes the object that was saved.

        Args:
            path: as of `save_to_path`, or a `Checkpoint`.
            filesystem: of fsspec or `pyarrow.fs`.

        Raises:
            FileNotFoundError: there is no checkpoint.
            TypeError: it is one of another class.
        """
        with _local(path, filesystem) as folder:
            with open(os.path.join(folder, cls.CLASS_AND_CTOR_ARGS_FILE_NAME), "rb") as file:
                made_by = pickle.load(file)
            found = made_by["class"]
            if not issubclass(found, cls):
                raise TypeError(
                    f"The checkpoint {path} is one of {found.__name__}, which is no {cls.__name__}."
                )
            args, named = made_by["ctor_args_and_kwargs"]
            made: Self = found(*args, **named)
            made._read(folder, **kwargs)
        return made

    # ---- choosing components

    def _check_component(
        self,
        name: str,
        components: str | Collection[str] | None,
        not_components: str | Collection[str] | None,
    ) -> bool:
        """Whether a component, or some of it, is wanted."""
        wanted, unwanted = _names(components), _names(not_components)
        if unwanted is not None and name in unwanted:
            return False
        return wanted is None or any(each == name or each.startswith(name + "/") for each in wanted)

    def _get_subcomponents(
        self, name: str, components: str | Collection[str] | None
    ) -> Collection[str] | None:
        """The paths below a component; None: nothing was said of parts of it."""
        found = [each[len(name) + 1 :] for each in _names(components) or () if each.startswith(name + "/")]
        return found or None


def get_checkpoint_info(checkpoint: Any, filesystem: Any = None) -> dict[str, Any]:
    """What a checkpoint is: "type" (the class's name), "format", "checkpoint_version", "module_ids" and "state_file".

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    with _local(checkpoint, filesystem) as folder:
        with open(os.path.join(folder, Checkpointable.CLASS_AND_CTOR_ARGS_FILE_NAME), "rb") as file:
            found = pickle.load(file)["class"]
        with open(os.path.join(folder, found.METADATA_FILE_NAME), encoding="utf-8") as file:
            metadata = json.load(file)
        state = next(name for name in os.listdir(folder) if name.rpartition(".")[0] == metadata["state_file"])
        modules = os.path.join(folder, "learner_group", "learner", COMPONENT_RL_MODULE)
        return {
            "type": found.__name__,
            "format": "msgpack" if state.endswith(".msgpack") else "cloudpickle",
            "checkpoint_version": metadata["checkpoint_version"],
            "checkpoint_dir": folder,
            "state_file": os.path.join(folder, state),
            "module_ids": sorted(e.name for e in os.scandir(modules) if e.is_dir())
            if os.path.isdir(modules)
            else None,
        }


@contextlib.contextmanager
def _local(path: Any, filesystem: Any) -> Iterator[str]:
    """A local folder with the files of a checkpoint."""
    checkpoint = path if hasattr(path, "as_directory") else Checkpoint(os.fspath(path), filesystem)
    with checkpoint.as_directory() as folder:
        expected = Checkpointable.CLASS_AND_CTOR_ARGS_FILE_NAME
        if not os.path.exists(os.path.join(folder, expected)):
            raise FileNotFoundError(f"There is no checkpoint in {checkpoint.path}: it has no {expected}.")
        yield folder


@contextlib.contextmanager
def _draft_of(folder: str) -> Iterator[str]:
    """A new folder whose files move to `folder` when the block has ended without an error."""
    exists = os.path.isdir(folder)
    draft = os.path.join(folder, ".draft-") if exists else f"{os.path.abspath(folder)}.draft-"
    draft += uuid.uuid4().hex
    try:
        os.makedirs(draft)
        yield draft
        if exists:
            _replace(draft, folder)
        else:
            os.rename(draft, folder)
    except OSError as error:
        reason = f"The checkpoint was not saved: {error.strerror or error}"
        raise OSError(error.errno, reason, folder) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: str, folder: str) -> None:
    """Moves the files of a checkpoint over those of an earlier one. Other files of the folder stay."""
    for path in sorted(pathlib.Path(draft).rglob("*")):
        target = pathlib.Path(folder, path.relative_to(draft))
        if path.is_dir():
            target.mkdir(exist_ok=True)
            continue
        for other in _STATE_KINDS:  # the earlier state may be of the other kind, and would be read first
            if path.suffix in _STATE_KINDS and path.suffix != other:
                target.with_suffix(other).unlink(missing_ok=True)
        path.replace(target)


def _state(folder: str, name: str) -> StateDict:
    readers: dict[str, Callable[[bytes], Any]] = {"pkl": pickle.loads, "msgpack": _unpacked}
    for kind, read in readers.items():
        file = pathlib.Path(folder, f"{name}.{kind}")
        if file.exists():
            found: StateDict = read(file.read_bytes())
            return found
    raise FileNotFoundError(
        f"The checkpoint in {folder} has no state: neither {name}.pkl nor {name}.msgpack."
    )


def _contents(folder: str) -> dict[str, bytes]:
    """The files below a folder, by their relative paths with "/"."""
    base = pathlib.Path(folder)
    return {e.relative_to(base).as_posix(): e.read_bytes() for e in sorted(base.rglob("*")) if e.is_file()}


def _unpack(packed: dict[str, bytes], folder: str) -> None:
    for name, content in packed.items():
        target = pathlib.Path(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _packed(state: StateDict) -> bytes:
    """The state in msgpack.

    Raises:
        TypeError: it has objects other than plain data and arrays.
    """

    def encode(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            buffer = io.BytesIO()
            np.save(buffer, value, allow_pickle=False)
            return msgspec.msgpack.Ext(_ARRAY, buffer.getvalue())
        raise TypeError(
            f"A {type(value).__name__} cannot be saved with msgpack. Save with use_msgpack=False."
        )

    return msgspec.msgpack.encode(state, enc_hook=encode)


def _unpacked(data: bytes) -> Any:
    def decode(code: int, content: memoryview) -> Any:
        if code != _ARRAY:
            raise ValueError(
                f"The state has an unknown extension type {code}: it was saved by another program."
            )
        return np.load(io.BytesIO(content), allow_pickle=False)

    return msgspec.msgpack.Decoder(ext_hook=decode).decode(data)


def _names(components: str | Collection[str] | None) -> Collection[str] | None:
    return [components] if isinstance(components, str) else components
