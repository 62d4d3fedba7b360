from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from runtime.rllib.core.learner.torch.fused_adam import FusedAdam


def parameters() -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(*shape, generator=generator)) for shape in ((3, 4), (4,), (2, 2, 2))
    ]


def step(optimizer: Any, params: list[Any], number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    for i, param in enumerate(params):
        # The second parameter has no gradient in some steps, as one of a net that a loss does not use.
        gradient = torch.randn(param.shape, generator=generator)
        param.grad = None if i == 1 and number % 3 == 0 else gradient
    optimizer.step()


@pytest.mark.parametrize(
    "settings", [{}, {"lr": 0.1, "betas": (0.5, 0.9)}, {"amsgrad": True, "weight_decay": 0.1, "eps": 1e-3}]
)
def test_it_makes_the_steps_of_adam(settings: dict[str, Any]) -> None:
    own, expected = parameters(), parameters()
    one, other = FusedAdam(own, **settings), torch.optim.Adam(expected, foreach=False, **settings)
    for number in range(10):
        if number == 5:
            for optimizer in (one, other):
                optimizer.param_groups[0]["lr"] = 0.05
        step(one, own, number)
        step(other, expected, number)
        for mine, theirs in zip(own, expected, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_states_go_to_adam_and_back() -> None:
    first, second = parameters(), parameters()
    one, other = FusedAdam(first), torch.optim.Adam(second)
    for number in range(4):
        step(one, first, number)
        step(other, second, number)
    third = [torch.nn.Parameter(param.detach().clone()) for param in second]
    restored = FusedAdam(third)
    restored.load_state_dict(copy.deepcopy(other.state_dict()))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for number in range(4, 8):
        step(one, first, number)
        step(other, second, number)
        step(restored, third, number)
    for mine, theirs, again in zip(first, second, third, strict=True):
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(mine, again)


def test_groups_have_settings_of_their_own_and_may_come_later() -> None:
    params = parameters()
    optimizer = FusedAdam(params[:1], lr=0.0)
    before = [param.detach().clone() for param in params]
    step(optimizer, params, 1)
    optimizer.add_param_group({"params": params[1:], "lr": 0.1})
    step(optimizer, params, 1)
    assert [torch.equal(param, old) for param, old in zip(params, before, strict=True)] == [
        True,
        False,
        False,
    ]
    optimizer.zero_grad()
    assert all(param.grad is None for param in params)
    assert optimizer.step(lambda: 7) == 7


def test_hooks_of_its_own_are_called_and_copies_go_on() -> None:
    params = parameters()
    optimizer = FusedAdam(params, lr=0.1)
    step(optimizer, params, 1)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    step(optimizer, params, 2)
    assert calls == ["before", "after"]
    params, twin = copy.deepcopy((params, FusedAdam(params, lr=0.1)))
    before = params[0].detach().clone()
    step(twin, params, 3)
    assert not torch.equal(params[0], before)


def test_schedulers_of_torch_work_with_it() -> None:
    params = parameters()
    optimizer = FusedAdam(params, lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for number in range(2):
        step(optimizer, params, number)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.025
