"""The optimizers of a learner, by module and name."""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from ..._core.types import ALL_MODULES, DEFAULT_MODULE_ID, ModuleID
from ...utils.schedules.scheduler import Scheduler

DEFAULT_OPTIMIZER = "default_optimizer"
ParamDict = dict[Hashable, Any]


class OptimizerRegistry(abc.ABC):
    """Optimizers with their parameters and learning rates."""

    framework: str | None = None
    _device: Any = None

    def __init__(self) -> None:
        # Names of optimizers begin with the module's id.
        self._named_optimizers: dict[str, Any] = {}
        self._module_optimizers: dict[ModuleID, list[str]] = defaultdict(list)
        self._optimizer_parameters: dict[Any, list[Hashable]] = {}
        self._optimizer_lr_schedules: dict[Any, Scheduler] = {}
        self._params: ParamDict = {}

    def register_optimizer(
        self,
        *,
        module_id: ModuleID = ALL_MODULES,
        optimizer_name: str = DEFAULT_OPTIMIZER,
        optimizer: Any,
        params: Sequence[Any],
        lr_or_lr_schedule: Any = None,
    ) -> None:
        """Adds an optimizer.

        Args:
            module_id: whose parameters it has.
            optimizer_name: unique for the module.
            optimizer: the optimizer.
            params: its parameters.
            lr_or_lr_schedule: a learning rate or schedule, which the learner then applies; None: left to the optimizer.
        """
        self._check_registered_optimizer(optimizer, params)
        name = f"{module_id}_{optimizer_name}"
        self._module_optimizers[module_id].append(name)
        self._named_optimizers[name] = optimizer
        refs = [self.get_param_ref(param) for param in params]
        self._optimizer_parameters[optimizer] = refs
        self._params.update(zip(refs, params, strict=True))
        if lr_or_lr_schedule is not None:
            Scheduler.validate(
                fixed_value_or_schedule=lr_or_lr_schedule, setting_name="lr", description="learning rate"
            )
            scheduler = Scheduler(lr_or_lr_schedule, framework=self.framework or "torch", device=self._device)
            self._optimizer_lr_schedules[optimizer] = scheduler
            self._set_optimizer_lr(optimizer, scheduler.get_current_value())

    def get_optimizer(
        self, module_id: ModuleID = DEFAULT_MODULE_ID, optimizer_name: str = DEFAULT_OPTIMIZER
    ) -> Any:
        """The optimizer of this name.

        Raises:
            KeyError: there is none.
        """
        for name in (optimizer_name, f"{module_id}_{optimizer_name}"):
            if name in self._named_optimizers:
                return self._named_optimizers[name]
        raise KeyError(
            f"Module {module_id!r} has no optimizer {optimizer_name!r}; there are {sorted(self._named_optimizers)}"
        )

    def get_optimizers_for_module(self, module_id: ModuleID = ALL_MODULES) -> list[tuple[str, Any]]:
        """Pairs of name and optimizer."""
        names = self._module_optimizers.get(module_id, ())
        return [(name[len(module_id) + 1 :], self._named_optimizers[name]) for name in names]

    def filter_param_dict_for_optimizer(self, param_dict: ParamDict, optimizer: Any) -> ParamDict:
        """What `param_dict` holds for the parameters of the optimizer, without None."""
        refs = self._optimizer_parameters[optimizer]
        return {ref: param_dict[ref] for ref in refs if param_dict.get(ref) is not None}

    def _forget_optimizers(self, module_id: ModuleID) -> None:
        """Removes the optimizers of a module."""
        for name, optimizer in self.get_optimizers_for_module(module_id):
            for ref in self._optimizer_parameters.pop(optimizer):
                self._params.pop(ref, None)
            self._optimizer_lr_schedules.pop(optimizer, None)
            del self._named_optimizers[f"{module_id}_{name}"]
        self._module_optimizers.pop(module_id, None)

    def _move_learning_rates(self, timestep: int) -> list[tuple[ModuleID, str, float]]:
        """Sets learning rates to those of the time step.

        Returns:
            Module id, name and learning rate of all optimizers.
        """
        rates = []
        for module_id in self._module_optimizers:
            for name, optimizer in self.get_optimizers_for_module(module_id):
                schedule = self._optimizer_lr_schedules.get(optimizer)
                if schedule is not None and schedule.use_schedule:
                    self._set_optimizer_lr(optimizer, schedule.update(timestep=timestep))
                rates.append((module_id, name, self._get_optimizer_lr(optimizer)))
        return rates

    def get_param_ref(self, param: Any) -> Hashable:
        """What stands for the parameter in dicts: the parameter itself."""
        return param

    @abc.abstractmethod
    def _check_registered_optimizer(self, optimizer: Any, params: Sequence[Any]) -> None:
        """Raises a ValueError if these are no optimizer and parameters."""

    @abc.abstractmethod
    def _get_optimizer_state(self) -> dict[str, Any]:
        """Name -> state of the optimizer, with NumPy arrays."""

    @abc.abstractmethod
    def _set_optimizer_state(self, state: dict[str, Any]) -> None:
        """Sets what `_get_optimizer_state` gave."""

    @staticmethod
    @abc.abstractmethod
    def _get_optimizer_lr(optimizer: Any) -> float:
        """The learning rate."""

    @staticmethod
    @abc.abstractmethod
    def _set_optimizer_lr(optimizer: Any, lr: float) -> None:
        """Changes the learning rate."""
