from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime.rllib.core.learner.utils import make_target_network, update_target_network


def test_a_target_follows_its_network_slowly() -> None:
    main = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    target = make_target_network(main)
    assert not any(param.requires_grad for param in target.parameters())
    old = [param.clone() for param in target.parameters()]
    with torch.no_grad():
        for param in main.parameters():
            param.add_(1.0)
        main[1].running_mean.fill_(5.0)  # type: ignore[union-attr, operator]
    assert all(torch.equal(param, before) for param, before in zip(target.parameters(), old, strict=True))
    update_target_network(main_net=main, target_net=target, tau=0.25)
    for param, before in zip(target.parameters(), old, strict=True):
        torch.testing.assert_close(param, before + 0.25)
    assert target[1].running_mean.tolist() == [5.0, 5.0]
    update_target_network(main_net=main, target_net=target, tau=1.0)
    for param, own in zip(target.parameters(), main.parameters(), strict=True):
        assert torch.equal(param, own)


@pytest.mark.parametrize("network", [None, {"weights": 1}])
def test_what_is_no_network_is_refused(network: Any) -> None:
    with pytest.raises(ValueError, match=r"torch\.nn\.Module"):
        make_target_network(network)
