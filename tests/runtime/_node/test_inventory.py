"""What a node says it has: given, found, and from the environment."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from runtime._node import config, gpus
from runtime._node.config import node_inventory

NODE = b"n" * 28


def inventory(
    resources: dict[str, float] | None = None, labels: dict[str, str] | None = None
) -> tuple[dict[str, int], dict[str, str]]:
    return node_inventory(
        resources or {}, labels or {}, node_id=NODE, host="10.0.0.1", is_head=False, store_bytes=1000
    )


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPUs, nothing in the environment."""
    monkeypatch.setattr(config, "find_gpus", lambda: (0, ""))
    for name in ("CUDA_VISIBLE_DEVICES", "RAY_OVERRIDE_RESOURCES", "RAY_OVERRIDE_LABELS"):
        monkeypatch.delenv(name, raising=False)


def test_what_every_node_has() -> None:
    total, labels = inventory({"CPU": 2})
    assert total["CPU"] == 20_000
    assert total["object_store_memory"] == 10_000_000
    assert total["node:10.0.0.1"] == 10_000
    assert "GPU" not in total
    assert labels == {"ray.io/node-id": NODE.hex()}


def test_gpus_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "find_gpus", lambda: (4, "H100"))
    total, labels = inventory()
    assert total["GPU"] == 40_000
    assert total["accelerator_type:H100"] == 10_000
    assert labels["ray.io/accelerator-type"] == "H100"


@pytest.mark.parametrize(("visible", "count"), [("2,3", 20_000), ("0,1,2,3,4,5", 40_000), ("", None)])
def test_of_those_found_only_the_visible(
    monkeypatch: pytest.MonkeyPatch, visible: str, count: int | None
) -> None:
    monkeypatch.setattr(config, "find_gpus", lambda: (4, "H100"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert inventory()[0].get("GPU") == count


def test_what_is_given_goes_before_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "find_gpus", lambda: (4, "H100"))
    total, labels = inventory({"GPU": 0}, {"ray.io/accelerator-type": "own"})
    assert "GPU" not in total
    assert labels["ray.io/accelerator-type"] == "own"


def test_the_environment_goes_before_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 3, "custom": 1}')
    monkeypatch.setenv("RAY_OVERRIDE_LABELS", '{"zone": "b"}')
    monkeypatch.setenv("RAY_NODE_ZONE", "z1")
    total, labels = inventory({"CPU": 2}, {"zone": "a"})
    assert (total["CPU"], total["custom"]) == (30_000, 10_000)
    assert labels["zone"] == "b"
    assert labels["ray.io/availability-zone"] == "z1"


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_an_environment_that_says_nothing_sensible(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_LABELS", text)
    with pytest.raises(ValueError, match="RAY_OVERRIDE_LABELS"):
        inventory()


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("NVIDIA GeForce RTX 5090", "GeForce-RTX-5090"),
    ],
)
def test_types_of_products(product: str, kind: str) -> None:
    assert gpus.type_of(product) == kind


class _Driver:
    """A management library with two GPUs."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.shut_down = False

    def nvmlInit_v2(self) -> int:
        return self.status

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, _index: int, _device: Any) -> int:
        return 0

    def nvmlDeviceGetName(self, _device: Any, name: Any, size: int) -> int:
        assert size >= 96
        name.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def nvmlShutdown(self) -> int:
        self.shut_down = True
        return 0


def test_asking_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = _Driver()
    monkeypatch.setattr(gpus, "DRIVER", ("/dev/null",))
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: driver)
    assert gpus.find_gpus() == (2, "H100")
    assert driver.shut_down


def test_a_driver_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "DRIVER", ("/dev/null",))
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: _Driver(status=9))
    assert gpus.find_gpus() == (0, "")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpus.find_gpus() == (0, "")


def test_no_library_is_looked_for_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "DRIVER", ("/dev/no-such-device",))
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: pytest.fail("it was looked for"))
    assert gpus.find_gpus() == (0, "")


TPU = {"TPU_ACCELERATOR_TYPE": "v4-16", "TPU_NAME": "pod", "TPU_WORKER_ID": "0", "TPU_TOPOLOGY": "2x2x2"}


def beyond(found: tuple[dict[str, int], dict[str, str]]) -> tuple[set[str], dict[str, str]]:
    """The resources and labels that not every node has."""
    usual = {"CPU", "memory", "object_store_memory", "node:10.0.0.1"}
    return found[0].keys() - usual, {k: v for k, v in found[1].items() if k != "ray.io/node-id"}


def test_the_first_host_of_a_tpu_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TPU.items():
        monkeypatch.setenv(name, value)
    assert beyond(inventory({"TPU": 4})) == (
        {"TPU", "accelerator_type:TPU-V4", "pod", "TPU-v4-16-head"},
        {
            "ray.io/accelerator-type": "TPU-V4",
            "ray.io/tpu-pod-type": "v4-16",
            "ray.io/tpu-slice-name": "pod",
            "ray.io/tpu-worker-id": "0",
            "ray.io/tpu-topology": "2x2x2",
        },
    )
    assert beyond(inventory()) == (set(), {}), "without TPUs the variables say nothing"


def test_other_hosts_of_tpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TPU:
        monkeypatch.delenv(name, raising=False)
    assert beyond(inventory({"TPU": 4})) == ({"TPU"}, {})
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v6e-8")
    labels = {"ray.io/accelerator-type": "TPU-V6E", "ray.io/tpu-pod-type": "v6e-8"}
    assert beyond(inventory({"TPU": 4})) == ({"TPU", "accelerator_type:TPU-V6E"}, labels)
    monkeypatch.setenv("TPU_NAME", "pod")
    monkeypatch.setenv("TPU_WORKER_ID", "1")
    assert beyond(inventory({"TPU": 4}))[0] == {"TPU", "accelerator_type:TPU-V6E", "pod"}


def test_neuron_cores_have_one_type() -> None:
    labels = {"ray.io/accelerator-type": "aws-neuron-core"}
    assert beyond(inventory({"neuron_cores": 2})) == (
        {"neuron_cores", "accelerator_type:aws-neuron-core"},
        labels,
    )
