"""What torchrun's programs find in their environment."""

from __future__ import annotations

from runtime.train._api.context import TrainContext
from runtime.train._core.ranks import Place
from runtime.train.torch._environment import interface_of, variables


def test_ranks_address_and_device() -> None:
    context = TrainContext(
        Place(worker=0, rank=3, world_size=4, local_rank=1, local_world_size=2, node_rank=1), "run"
    )
    assert variables(context, "10.0.0.7", 4711, "cuda:1") == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "NODE_RANK": "1",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "4711",
        "ACCELERATE_TORCH_DEVICE": "cuda:1",
    }


def test_an_address_has_an_interface() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None  # reserved for documentation
    assert interface_of("localhost") is None
