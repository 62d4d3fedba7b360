"""Which accelerators tasks see."""

from __future__ import annotations

import os

import pytest

from runtime._core.accelerators import HARDWARE
from runtime._executor.devices import Devices

VARIABLE = "CUDA_VISIBLE_DEVICES"
OVERRIDE_ON_ZERO = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"


@pytest.fixture(autouse=True)
def _no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {name for kind in HARDWARE.values() for name in kind.environment(["0"])}
    for name in (OVERRIDE_ON_ZERO, *shown):
        monkeypatch.setenv(name, "")  # so that it is put back whatever the test does
        monkeypatch.delenv(name)


def test_a_lease_shows_its_devices_and_the_next_shows_its_own() -> None:
    devices = Devices()
    devices.bind(["0", "2"], {})
    assert os.environ[VARIABLE] == "0,2"
    devices.bind(["1"], {})
    assert os.environ[VARIABLE] == "1"
    devices.bind([], {})
    assert VARIABLE not in os.environ


def test_numbers_of_the_node_become_those_that_the_process_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "4,7")
    devices = Devices()
    assert devices.ids("GPU", ["1"]) == ["7"]
    assert devices.gpu_ids(["1"]) == ["7"]
    devices.bind(["1"], {})
    assert os.environ[VARIABLE] == "7"
    devices.bind([], {})
    assert os.environ[VARIABLE] == "4,7"


def test_a_process_that_sees_fewer_devices_than_its_node_shows_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "4")
    assert Devices().ids("GPU", ["1"]) == ["4"]


def test_gpu_ids_are_numbers_where_all_are_visible() -> None:
    assert Devices().gpu_ids(["0", "1"]) == [0, 1]


def test_tasks_without_devices_see_none_when_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE_ON_ZERO, "1")
    Devices().bind([], {})
    assert os.environ[VARIABLE] == ""
