"""PyTorch tensors, where PyTorch is installed: equal, writable, and read in place."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tests.under_test import OWN, ray

torch: Any = pytest.importorskip("torch", exc_type=ImportError)
pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("error:The given (buffer|NumPy array) is not writable"),
]
LARGE = 300_000


def trip(value: Any) -> Any:
    return ray.get(ray.put(value))


TENSORS = {
    "small": torch.arange(10),
    "large": torch.arange(LARGE),
    "bfloat16": torch.ones(LARGE, dtype=torch.bfloat16),
    "bool": torch.tensor([True, False]),
    "complex": torch.ones(3, dtype=torch.complex64),
    "no dimension": torch.tensor(5.0),
    "empty": torch.empty((0, 3)),
    "transposed": torch.arange(LARGE).reshape(300, 1000).T,
    "strided": torch.arange(LARGE)[::3],
    "expanded": torch.ones(1, 5).expand(1000, 5),
    "channels last": torch.ones(2, 3, 40, 50).contiguous(memory_format=torch.channels_last),
    "requires grad": torch.ones(LARGE, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.ones(4)),
    "frozen parameter": torch.nn.Parameter(torch.ones(4), requires_grad=False),
    "conjugate": torch.ones(3, dtype=torch.complex64).conj(),
    "sparse": torch.eye(3).to_sparse(),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors(kind: str) -> None:
    tensor = TENSORS[kind]
    for result in (trip(tensor), trip({"in": [tensor]})["in"][0]):
        assert type(result) is type(tensor)
        assert result.dtype == tensor.dtype
        assert result.shape == tensor.shape
        assert result.requires_grad == tensor.requires_grad
        assert torch.equal(result.to_dense(), tensor.to_dense())


def test_the_order_in_memory_stays() -> None:
    assert trip(TENSORS["channels last"]).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_one_reader_writes_nobody_else_sees(size: int) -> None:
    ref = ray.put(torch.zeros(size))
    first, second = ray.get(ref), ray.get(ref)
    first += 1
    assert first.sum() == size
    assert second.sum() == 0
    assert ray.get(ref).sum() == 0


def test_a_tensor_outlives_its_reference() -> None:
    part = trip(torch.full((LARGE,), 7))[10:20]
    for i in range(5):
        trip(torch.full((LARGE,), i))
    assert part.sum() == 70


def test_a_slice_costs_its_own_bytes() -> None:
    if OWN:
        from runtime._wire import serialization

        assert serialization.serialize(torch.arange(LARGE)[5:10]).size_bytes < 2000
    assert trip(torch.arange(LARGE)[5:10]).tolist() == [5, 6, 7, 8, 9]


@pytest.mark.skipif(not OWN, reason="the other engine copies")
def test_large_tensors_are_read_in_place() -> None:
    ref = ray.put(torch.zeros(2**22))  # 16 MiB
    before = _private_kib()
    tensors = [ray.get(ref) for _ in range(10)]
    assert sum(float(tensor[0]) for tensor in tensors) == 0
    assert _private_kib() - before < 16 * 1024


def _private_kib() -> int:
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))


def test_a_model_is_trained_where_it_was_sent() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 1))

    @ray.remote
    def train(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(torch.ones(4, 200)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return model.state_dict()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = ray.get(train.remote(model))
    assert state.keys() == model.state_dict().keys()
    assert not torch.equal(state["0.bias"], model.state_dict()["0.bias"])
    model.load_state_dict(state)
    assert np.isfinite(model(torch.ones(1, 200)).item())
