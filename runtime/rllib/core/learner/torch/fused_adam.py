"""Adam for small networks: one fused operation per step and hardly any Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.adam import adam


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method without the wrapper that imports torch._dynamo on first use."""
    plain: Callable[..., Any] = inspect.unwrap(method)
    return plain


class FusedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, with the same states and results, for parameters on CPUs or CUDA devices.

    Adam's own methods import torch._dynamo, which takes over a second of each process that starts, and prepare each
    step in Python for about as long as a small network's step takes. `TorchLearner.new_adam` chooses between the two.
    Hooks that are registered for this optimizer are called, global ones of all optimizers are not.
    """

    add_param_group = _plain(Optimizer.add_param_group)
    state_dict = _plain(Optimizer.state_dict)
    zero_grad = _plain(Optimizer.zero_grad)
    _load = _plain(Optimizer.load_state_dict)

    def __init__(self, params: Any, **kwargs: Any) -> None:
        self._lists: dict[int, tuple[list[Any], ...]] = {}  # of each group whose parameters all had gradients
        super().__init__(params, fused=True, **kwargs)
        # The class's `step` has a wrapper for hooks and profilers, which is not needed until there is a hook.
        self.__dict__["step"] = self._step

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a copy, which has the wrapped `step`."""
        super().__setstate__(state)
        self._lists = {}

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Calls `hook(optimizer, args, kwargs)` before each step."""
        self.__dict__.pop("step", None)
        return super().register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> Any:
        """Calls `hook(optimizer, args, kwargs)` after each step."""
        self.__dict__.pop("step", None)
        return super().register_step_post_hook(hook)

    def load_state_dict(self, state_dict: Any) -> None:
        """Sets what `state_dict` gave."""
        self._lists = {}
        self._load(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step with the gradients that are set. Parameters without one stay.

        Args:
            closure: computes the loss and its gradients first, if given.
        """
        return self._step(closure)

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        with torch.no_grad():
            for number, group in enumerate(self.param_groups):
                lists = self._lists.get(number)
                if lists is None or len(lists[0]) != len(group["params"]) or _has_none(lists[0]):
                    lists = self._lists_of(group)
                    self._lists[number] = lists
                if lists[0]:
                    _fused_step(group, *lists)
        return loss

    def _lists_of(self, group: dict[str, Any]) -> tuple[list[Any], ...]:
        """The group's parameters that have gradients, and their moments and step counters."""
        params = [param for param in group["params"] if param.grad is not None]
        for param in params:
            state = self.state[param]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=param.device)
                for name in ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ()):
                    state[name] = torch.zeros_like(param, memory_format=torch.preserve_format)
        largest = [self.state[param]["max_exp_avg_sq"] for param in params] if group["amsgrad"] else []
        return (
            params,
            [self.state[param]["exp_avg"] for param in params],
            [self.state[param]["exp_avg_sq"] for param in params],
            largest,
            [self.state[param]["step"] for param in params],
        )


def _has_none(params: list[Any]) -> bool:
    return any(param.grad is None for param in params)


def _fused_step(
    group: dict[str, Any],
    params: list[Any],
    means: list[Any],
    squares: list[Any],
    largest: list[Any],
    steps: list[Any],
) -> None:
    beta1, beta2 = group["betas"]
    adam(
        params,
        [param.grad for param in params],
        means,
        squares,
        largest,
        steps,
        fused=True,
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=group["amsgrad"],
        maximize=group["maximize"],
    )
