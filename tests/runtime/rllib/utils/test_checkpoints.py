"""Checkpoints of objects with components."""

from __future__ import annotations

import pathlib
import resource
from collections.abc import Collection
from typing import Any

import fsspec
import numpy as np
import pytest

import runtime
from runtime.rllib.utils.checkpoints import Checkpointable, get_checkpoint_info


class Part(Checkpointable):
    def __init__(self, size: int) -> None:
        self.size = size
        self.values = np.zeros(size)

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        return {"values": self.values}

    def set_state(self, state: dict[str, Any]) -> None:
        self.values = np.asarray(state["values"])

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.size,), {}


class Whole(Checkpointable):
    STATE_FILE_NAME = "whole_state"

    def __init__(self, remote: bool = False) -> None:
        self.step = 0
        self.left = Part(2)
        self.right: Any = runtime.remote(Part).options(num_cpus=0).remote(3) if remote else Part(3)
        self.remote = remote

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        state: dict[str, Any] = {"step": self.step} if components is None else {}
        for name, part in self.get_checkpointable_components():
            if self._check_component(name, components, not_components):
                state[name] = part.get_state(self._get_subcomponents(name, components))
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        self.step = state.get("step", self.step)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {"remote": self.remote}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        return [("left", self.left), ("right", self.right)]


def changed(whole: Whole) -> Whole:
    whole.step = 7
    whole.left.values = np.array([1.0, 2.0])
    whole.right.values = np.array([3.0, 4.0, 5.0])
    return whole


@pytest.mark.parametrize("use_msgpack", [False, True])
def test_an_equal_object_is_made_of_a_checkpoint(tmp_path: pathlib.Path, use_msgpack: bool) -> None:
    path = changed(Whole()).save_to_path(tmp_path / "here" / "it", use_msgpack=use_msgpack)
    made = Whole.from_checkpoint(path)
    assert made.step == 7
    np.testing.assert_array_equal(made.left.values, [1, 2])
    np.testing.assert_array_equal(made.right.values, [3, 4, 5])
    info = get_checkpoint_info(path)
    assert (info["type"], info["format"]) == ("Whole", "msgpack" if use_msgpack else "cloudpickle")
    assert info["module_ids"] is None


def test_saving_again_replaces_the_other_format(tmp_path: pathlib.Path) -> None:
    whole = changed(Whole())
    whole.save_to_path(tmp_path)
    whole.step = 8
    whole.save_to_path(tmp_path, use_msgpack=True)
    assert Whole.from_checkpoint(tmp_path).step == 8


def test_other_files_of_the_folder_stay(tmp_path: pathlib.Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(2):
        changed(Whole()).save_to_path(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert Whole.from_checkpoint(tmp_path).step == 7
    assert not list(tmp_path.rglob("*draft*"))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path: pathlib.Path, is_there: bool) -> None:
    folder = tmp_path / "checkpoint"
    whole = changed(Whole())
    if is_there:
        whole.save_to_path(folder)
    whole.step, whole.right.values = 8, np.ones(100_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))  # bytes of a file
    try:
        with pytest.raises(OSError, match=r"The checkpoint was not saved: File too large: .*/checkpoint"):
            whole.save_to_path(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.name for each in tmp_path.iterdir()] == (["checkpoint"] if is_there else [])
    if is_there:
        assert Whole.from_checkpoint(folder).step == 7
        assert not list(folder.glob(".*"))


def test_a_component_is_a_checkpoint(tmp_path: pathlib.Path) -> None:
    path = changed(Whole()).save_to_path(tmp_path)
    part = Part.from_checkpoint(f"{path}/right")
    np.testing.assert_array_equal(part.values, [3, 4, 5])
    whole = Whole()
    whole.restore_from_path(f"{path}/right", component="right")
    np.testing.assert_array_equal(whole.right.values, [3, 4, 5])
    np.testing.assert_array_equal(whole.left.values, [0, 0])
    assert whole.step == 0


def test_a_given_state_is_saved_instead(tmp_path: pathlib.Path) -> None:
    whole = changed(Whole())
    whole.save_to_path(tmp_path, state={"step": 9, "left": {"values": np.ones(2)}})
    made = Whole.from_checkpoint(tmp_path)
    assert made.step == 9
    np.testing.assert_array_equal(made.left.values, [1, 1])
    np.testing.assert_array_equal(made.right.values, [3, 4, 5])


def test_without_a_path_a_folder_is_made() -> None:
    path = changed(Whole()).save_to_path()
    assert Whole.from_checkpoint(path).step == 7


def test_uris_and_file_systems() -> None:
    uri = changed(Whole()).save_to_path("memory://checkpoints/one")
    assert uri == "memory://checkpoints/one"
    assert Whole.from_checkpoint(uri).step == 7
    files = fsspec.filesystem("memory")
    changed(Whole()).save_to_path("/checkpoints/two", filesystem=files)
    whole = Whole()
    whole.restore_from_path("/checkpoints/two", filesystem=files)
    assert whole.step == 7
    assert not [name for name in files.find("/checkpoints") if "draft" in name]


def test_errors_name_what_is_missing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        Whole.from_checkpoint(tmp_path)
    path = Whole().save_to_path(tmp_path)
    with pytest.raises(KeyError, match="no component 'middle'; it has left, right"):
        Whole().restore_from_path(path, component="middle")
    with pytest.raises(TypeError, match="one of Whole, which is no Part"):
        Part.from_checkpoint(path)
    (tmp_path / "whole_state.pkl").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither whole_state\.pkl"):
        Whole.from_checkpoint(path)


def test_objects_that_msgpack_cannot_hold_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TypeError, match="use_msgpack=False"):
        Whole().save_to_path(tmp_path, state={"step": object()}, use_msgpack=True)


def test_choosing_components() -> None:
    whole = changed(Whole())
    assert set(whole.get_state()) == {"step", "left", "right"}
    assert set(whole.get_state("left")) == {"left"}
    assert set(whole.get_state(["right/values"])) == {"right"}
    assert set(whole.get_state(not_components=["right"])) == {"step", "left"}


def test_an_actor_as_component(session: Any, tmp_path: pathlib.Path) -> None:
    whole = Whole(remote=True)
    runtime.get(whole.right.set_state.remote({"values": np.array([6.0])}))
    made = Whole.from_checkpoint(whole.save_to_path(tmp_path))
    np.testing.assert_array_equal(runtime.get(made.right.get_state.remote())["values"], [6])
