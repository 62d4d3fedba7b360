from __future__ import annotations

import pytest

from runtime._core.accelerators import HARDWARE, check_amount, split_ids


@pytest.mark.parametrize(
    ("text", "ids"), [(None, None), ("", []), ("NoDevFiles", []), ("0", ["0"]), ("4,GPU-1", ["4", "GPU-1"])]
)
def test_visible_ids(text: str | None, ids: list[str] | None) -> None:
    assert split_ids(text) == ids


@pytest.mark.parametrize(
    ("resource", "ids", "variables"),
    [
        ("GPU", ["0", "2"], {"CUDA_VISIBLE_DEVICES": "0,2"}),
        ("GPU", [], {"CUDA_VISIBLE_DEVICES": ""}),
        ("neuron_cores", ["1"], {"NEURON_RT_VISIBLE_CORES": "1"}),
        ("HPU", ["1"], {"HABANA_VISIBLE_MODULES": "1"}),
        ("NPU", ["1"], {"ASCEND_RT_VISIBLE_DEVICES": "1"}),
        ("TPU", ["0", "1", "2", "3"], {"TPU_VISIBLE_CHIPS": "0,1,2,3"}),
        (
            "TPU",
            ["1"],
            {"TPU_VISIBLE_CHIPS": "1", "TPU_CHIPS_PER_HOST_BOUNDS": "1,1,1", "TPU_HOST_BOUNDS": "1,1,1"},
        ),
        (
            "TPU",
            ["0", "1"],
            {"TPU_VISIBLE_CHIPS": "0,1", "TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1", "TPU_HOST_BOUNDS": "1,1,1"},
        ),
    ],
)
def test_variables(resource: str, ids: list[str], variables: dict[str, str]) -> None:
    assert HARDWARE[resource].environment(ids) == variables


@pytest.mark.parametrize(("resource", "amount"), [("GPU", 0.5), ("GPU", 2), ("TPU", 4), ("other", 1.5)])
def test_amounts(resource: str, amount: float) -> None:
    check_amount(resource, amount)


@pytest.mark.parametrize(("resource", "amount"), [("GPU", 1.5), ("TPU", 3), ("TPU", 0.5), ("HPU", 0.5)])
def test_wrong_amounts(resource: str, amount: float) -> None:
    with pytest.raises(ValueError, match=resource):
        check_amount(resource, amount)


def test_opting_out() -> None:
    assert HARDWARE["GPU"].opt_out == "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
    assert HARDWARE["RBLN"].opt_out == "RAY_EXPERIMENTAL_NOSET_RBLN_RT_VISIBLE_DEVICES"
