"""The learner of torch modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ...._core import trees
from ...._core.minibatches import minibatch_count, minibatch_rows, rows_of_groups
from ...._core.rollout import Rollout
from ...._core.types import ALL_MODULES, Config, ModuleID
from ....utils.metrics import NUM_NON_TRAINABLE_PARAMETERS, NUM_TRAINABLE_PARAMETERS
from ...columns import Columns
from ...rl_module.default_model_config import DefaultModelConfig
from ...rl_module.rl_module import RLModule
from ...rl_module.torch.torch_compile_config import TorchCompileConfig
from ...rl_module.torch.torch_rl_module import TorchRLModule
from ..learner import Batch, Learner
from ..optimizers import ParamDict
from ..training_data import row_count
from .batches import Sequences, as_tensor, take, tensors, through_sequences
from .gradients import average_over_learners, clip, global_norm, most_of_learners


class TorchLearner(Learner):
    """Trains torch modules with Adam, one optimizer per module. Subclasses add the loss.

    With several learners, gradients are averaged after each backward pass. They hold the same module because they
    start from the same weights and make the same steps.
    """

    framework = "torch"

    # ---- building

    def build(self) -> None:
        """Builds the module on its device, its optimizers and the learner connector."""
        if self._is_built:
            return
        self._device = self._own_device()
        if self.config.seed is not None:
            torch.manual_seed(self.config.seed)
        super().build()
        if self.config.torch_compile_learner:
            self._compile()
        if self.config.seed is not None:
            self._rng = np.random.default_rng([self.config.seed, self._learner_index])

    def _compile(self) -> None:
        """Compiles the modules' forward passes, or the whole gradient step."""
        config = self.config
        settings = TorchCompileConfig(
            torch_dynamo_backend=config.torch_compile_learner_dynamo_backend,
            torch_dynamo_mode=config.torch_compile_learner_dynamo_mode,
        )
        if str(config.torch_compile_learner_what_to_compile).endswith("complete_update"):
            self.__dict__["_update"] = torch.compile(
                self._update, backend=settings.torch_dynamo_backend, mode=settings.torch_dynamo_mode
            )
            return
        for module in self.module.values():
            if isinstance(module, TorchRLModule):
                module.compile(settings)

    def _own_device(self) -> torch.device:
        if self.config.num_gpus_per_learner <= 0:
            return torch.device("cpu")
        if not torch.cuda.is_available():
            raise RuntimeError(
                f"num_gpus_per_learner is {self.config.num_gpus_per_learner}, but torch finds no GPU in this process. "
                "Set config.learners(num_gpus_per_learner=0) to train on CPUs"
            )
        # A learner of its own process sees only the GPUs that it was given.
        return torch.device("cuda", 0 if self.config.num_learners > 0 else self.config.local_gpu_idx or 0)

    def _make_module(self) -> Any:
        module = super()._make_module()
        for each in (module, *module.values()):
            self._placed(each)
        return module

    def _placed(self, module: RLModule) -> RLModule:
        """The module on this learner's device, with the first learner's weights."""
        if isinstance(module, torch.nn.Module):
            module.to(self._device)
            if self.distributed and torch.distributed.is_initialized():
                for tensor in (*module.parameters(), *module.buffers()):
                    torch.distributed.broadcast(tensor.detach(), src=0)
        return module

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """Registers one Adam for the module, with `lr` of the config."""
        config = config or self.config_for_module(module_id)
        params = [param for param in self.get_parameters(self.module[module_id]) if param.requires_grad]
        if params:
            self.register_optimizer(
                module_id=module_id,
                optimizer=self.new_adam(params),
                params=params,
                lr_or_lr_schedule=config.lr,
            )

    def new_adam(self, params: Sequence[torch.Tensor], **kwargs: Any) -> torch.optim.Adam:
        """An Adam that makes its step in one fused operation where the device has that."""
        return torch.optim.Adam(params, fused=self._device.type in ("cpu", "cuda") or None, **kwargs)

    def get_parameters(self, module: RLModule) -> Sequence[Any]:
        """The parameters of a module; none if it is no torch module."""
        return list(module.parameters()) if isinstance(module, torch.nn.Module) else []

    # ---- batches

    def batch_from_rollout(self, module_id: ModuleID, rollout: Rollout) -> dict[str, Any]:
        """The columns as tensors [rows, ...].

        Those of a recurrent module are [B, T, ...], with "loss_mask" [B, T] and "state_in" [B, ...].
        """
        module = self.module[module_id].unwrapped()
        if not module.is_stateful():
            return self._tensors(rollout.columns)
        sequences = self.sequences_of(module, rollout)
        _, state_in = through_sequences(module, rollout, sequences, self._device, has_values=False)
        return self.sequence_batch(rollout, np.ones(rollout.rows, bool), sequences, state_in)

    def sequences_of(self, module: Any, rollout: Rollout) -> Sequences:
        """Sequences of at most "max_seq_len" rows, a setting of the module."""
        settings, default = module.model_config, DefaultModelConfig().max_seq_len
        length = (
            settings.get("max_seq_len", default)
            if isinstance(settings, dict)
            else getattr(settings, "max_seq_len", default)
        )
        return Sequences(rollout, int(length))

    def sequence_batch(
        self, rollout: Rollout, mask: np.ndarray, sequences: Sequences, state_in: Any, **more: Any
    ) -> dict[str, Any]:
        """Sequences [B, T, ...] of a rollout's columns and of further ones.

        Args:
            rollout: the rows.
            mask: bool [rows], which of them count.
            sequences: of the rows.
            state_in: tree of arrays [B, ...].
            more: further columns [rows, ...].
        """
        columns = {**rollout.columns, **more, Columns.LOSS_MASK: mask}
        columns.pop(Columns.STATE_OUT, None)
        batch = {name: tensors(sequences.padded(column), self._device) for name, column in columns.items()}
        batch[Columns.STATE_IN] = tensors(state_in, self._device)
        return batch

    def _tensors(self, columns: dict[str, Any]) -> dict[str, Any]:
        return {
            name: tensors(column, self._device) for name, column in columns.items() if _is_numeric(column)
        }

    def groups_of(self, module_id: ModuleID, columns: dict[str, Any]) -> np.ndarray | None:
        """Lengths of the groups of rows that minibatches must not tear apart; None: each row is by itself."""
        return None

    def _minibatches(
        self,
        batch: Batch,
        num_total_minibatches: int,
        num_epochs: int,
        minibatch_size: int | None,
        shuffle: bool,
    ) -> Iterator[Batch]:
        if not batch:
            return
        if minibatch_size is None:
            for _ in range(num_total_minibatches or num_epochs):
                yield batch
            return
        units: dict[ModuleID, int] = {}  # rows, sequences or groups of rows
        sizes: dict[ModuleID, int] = {}  # how many of them a minibatch has
        groups: dict[ModuleID, np.ndarray | None] = {}
        for module_id, columns in batch.items():
            lengths = groups[module_id] = self.groups_of(module_id, columns)
            units[module_id] = row_count(columns) if lengths is None else len(lengths)
            steps = int(self._steps_in(columns))
            sizes[module_id] = max(1, round(minibatch_size * units[module_id] / max(steps, 1)))
        count = num_total_minibatches or max(
            minibatch_count({module_id: units[module_id]}, sizes[module_id], num_epochs)
            for module_id in batch
        )
        if self.distributed and not num_total_minibatches and torch.distributed.is_initialized():
            # Gradients are averaged minibatch by minibatch, so that all learners must have the same number of them.
            count = most_of_learners(count, self._device)
        streams = {
            module_id: minibatch_rows(
                units[module_id], sizes[module_id], count, shuffle=shuffle, rng=self._rng
            )
            for module_id in batch
        }
        for _ in range(count):
            minibatch = {}
            for module_id, columns in batch.items():
                rows, lengths = next(streams[module_id]), groups[module_id]
                if lengths is not None:
                    rows = rows_of_groups(rows, lengths)
                index = as_tensor(rows, self._device)
                minibatch[module_id] = {name: take(column, index) for name, column in columns.items()}
            yield minibatch

    # ---- the gradient step

    def _update(self, batch: Batch, **kwargs: Any) -> tuple[Any, dict[ModuleID, Any], dict[str, Any]]:
        fwd_out = self.module.forward_train(batch)
        losses = self.compute_losses(fwd_out=fwd_out, batch=batch)
        gradients = self.compute_gradients(losses)
        if self.distributed:
            self._average(gradients, losses)
        self.apply_gradients(self.postprocess_gradients(gradients))
        return fwd_out, losses, {}

    def _average(self, gradients: ParamDict, module_ids: Iterable[ModuleID]) -> None:
        """Replaces gradients by their means over the learners, with zeros for parameters without one in this batch:
        all learners must send the same parameters."""
        for module_id in module_ids:
            for _, optimizer in self.get_optimizers_for_module(module_id):
                for ref in self._optimizer_parameters[optimizer]:
                    if gradients.get(ref) is None:
                        gradients[ref] = torch.zeros_like(self._params[ref])
        average_over_learners([each for each in gradients.values() if each is not None])

    def compute_gradients(self, loss_per_module: dict[ModuleID, Any], **kwargs: Any) -> ParamDict:
        """Parameter -> gradient of the sum of the losses; None for parameters that the losses do not depend on."""
        params = self._params
        for param in params.values():
            param.grad = None
        losses = list(loss_per_module.values())
        total = losses[0] if len(losses) == 1 else sum(losses[1:], losses[0])
        if isinstance(total, torch.Tensor) and total.requires_grad:
            total.backward()
        return {ref: param.grad for ref, param in params.items()}

    def postprocess_gradients_for_module(
        self, *, module_id: ModuleID, config: Config | None = None, module_gradients_dict: ParamDict
    ) -> ParamDict:
        """Clips the gradients of each optimizer as `grad_clip` and `grad_clip_by` of the config say."""
        config = config or self.config_for_module(module_id)
        if config.grad_clip is None and not config.log_gradients:
            return module_gradients_dict
        for name, optimizer in self.get_optimizers_for_module(module_id):
            own = list(self.filter_param_dict_for_optimizer(module_gradients_dict, optimizer).values())
            if not own:
                continue
            norm = None
            if (config.log_gradients and config.grad_clip_by != "global_norm") or config.grad_clip is None:
                norm = global_norm(own)
            if config.grad_clip is not None:
                before = clip(own, config.grad_clip, config.grad_clip_by)
                norm = before if norm is None else norm
            if norm is not None and self.logs_losses:
                self.metrics.log_value((module_id, f"gradients_{name}_global_norm"), norm, window=1)
        return module_gradients_dict

    def apply_gradients(self, gradients_dict: ParamDict) -> None:
        """Each optimizer makes a step with the gradients of its parameters."""
        for optimizer, refs in self._optimizer_parameters.items():
            has_any = False
            for ref in refs:
                gradient = gradients_dict.get(ref)
                has_any |= gradient is not None
                param = self._params[ref]
                if param.grad is not gradient:
                    param.grad = gradient
            if has_any and not (self.config.torch_skip_nan_gradients and self._has_nan(gradients_dict, refs)):
                optimizer.step()

    def _has_nan(self, gradients: ParamDict, refs: Sequence[Any]) -> bool:
        """Whether a gradient is not finite. The device is waited for."""
        own = [gradients[ref] for ref in refs if gradients.get(ref) is not None]
        return not bool(torch.isfinite(global_norm(own)))

    # ---- optimizers

    def _check_registered_optimizer(self, optimizer: Any, params: Sequence[Any]) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"An optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
        if not isinstance(params, Sequence) or not all(isinstance(param, torch.Tensor) for param in params):
            raise ValueError(f"The parameters of an optimizer must be a list of tensors, not {params!r}")

    def _get_optimizer_state(self) -> dict[str, Any]:
        return {
            name: _map_tensors(optimizer.state_dict(), lambda leaf: leaf.detach().cpu().numpy().copy())
            for name, optimizer in self._named_optimizers.items()
        }

    def _set_optimizer_state(self, state: dict[str, Any]) -> None:
        for name, part in state.items():
            if name not in self._named_optimizers:
                raise ValueError(
                    f"The state has an optimizer {name!r}, but this learner has {sorted(self._named_optimizers)}"
                )
            optimizer = self._named_optimizers[name]
            optimizer.load_state_dict(_map_arrays(part, self._device))
            schedule = self._optimizer_lr_schedules.get(optimizer)
            if schedule is not None and not schedule.use_schedule:
                # The config decides, for example of a trial that goes on from another one's checkpoint.
                self._set_optimizer_lr(optimizer, schedule.get_current_value())

    @staticmethod
    def _get_optimizer_lr(optimizer: Any) -> float:
        return float(optimizer.param_groups[0]["lr"])

    @staticmethod
    def _set_optimizer_lr(optimizer: Any, lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr

    # ---- metrics

    def _log_trainable_parameters(self) -> None:
        totals = [0, 0]
        for module_id, module in self.module.items():
            counts = [0, 0]
            for param in self.get_parameters(module):
                counts[not param.requires_grad] += param.numel()
            self._log_parameters(module_id, counts)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
        self._log_parameters(ALL_MODULES, totals)

    def _log_parameters(self, module_id: ModuleID, counts: Sequence[int]) -> None:
        for name, count in zip((NUM_TRAINABLE_PARAMETERS, NUM_NON_TRAINABLE_PARAMETERS), counts, strict=True):
            self.metrics.log_value((module_id, name), count, window=1)


def _is_numeric(column: Any) -> bool:
    return all(
        isinstance(leaf, torch.Tensor) or np.asarray(leaf).dtype.kind in "biuf"
        for leaf in trees.leaves(column)
    )


def _map_tensors(value: Any, function: Any) -> Any:
    if isinstance(value, dict):
        return {key: _map_tensors(each, function) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_map_tensors(each, function) for each in value)
    return function(value) if isinstance(value, torch.Tensor) else value


def _map_arrays(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {key: _map_arrays(each, device) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_map_arrays(each, device) for each in value)
    return torch.as_tensor(value.copy(), device=device) if isinstance(value, np.ndarray) else value
