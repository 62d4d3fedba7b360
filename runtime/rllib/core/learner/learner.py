"""One learner: its module, optimizers and the course of an update."""

from __future__ import annotations

import abc
import copy
import logging
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..._core.rollout import Rollout
from ..._core.types import ALL_MODULES, Config, ModuleID
from ...utils.checkpoints import Checkpointable
from ...utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from ...utils.metrics.metrics_logger import MetricsLogger
from .. import COMPONENT_METRICS_LOGGER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from ..columns import Columns
from ..rl_module.apis import SelfSupervisedLossAPI
from ..rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec, validate_module_id
from ..rl_module.rl_module import RLModule
from .experience import rollouts_of
from .module_changes import record_modules
from .optimizers import OptimizerRegistry, ParamDict
from .steps import log_steps_trained
from .streams import endless, with_end
from .training_data import TrainingData, columns_by_module, row_count

log = logging.getLogger(__name__)

POLICY_LOSS_KEY = "policy_loss"
VF_LOSS_KEY = "vf_loss"
ENTROPY_KEY = "entropy"
LR_KEY = "learning_rate"

Batch = dict[ModuleID, dict[str, Any]]
"""Module id -> column -> tensor, or tree of tensors, [rows, ...]."""


class Learner(OptimizerRegistry, Checkpointable):
    """Updates a `MultiRLModule` by gradients of a loss.

    An update goes: `before_gradient_based_update`; the data becomes one batch of tensors per module
    (`batch_from_rollout`); for each minibatch `forward_train` of the module, `compute_losses`, `compute_gradients`,
    `postprocess_gradients`, `apply_gradients`; `after_gradient_based_update`. Each of these can be overridden.

    Args:
        config: an AlgorithmConfig; copied.
        module_spec: specification of the module or modules; None: that of the config.
        module: the module itself, instead of a specification.
    """

    framework: str | None = None
    TOTAL_LOSS_KEY = "total_loss"

    def __init__(self, *, config: Config, module_spec: Any = None, module: RLModule | None = None) -> None:
        self.config = config.copy(copy_frozen=False)
        self.metrics = self._new_metrics()
        self.iterator: Iterator[Any] | None = None
        self.logs_losses = True
        """Whether results of the loss under way are reported: only those of an update's last minibatch are. A loss may
        skip what is only computed for the report."""

        OptimizerRegistry.__init__(self)
        self._module_spec = module_spec
        self._module_obj = module
        self._module: Any = None
        self._node = platform.node()
        self._device: Any = None
        self._is_built = False
        self._learner_index = 0
        self._placement_group: Any = None
        self._weights_seq_no = 0
        self._learner_connector: Any = None
        self._rng = np.random.default_rng(self.config.seed)
        self._module_configs: dict[ModuleID, Config] = {}

    # ---- building

    def build(self) -> None:
        """Builds the module, its optimizers and, if the config has one, the learner connector."""
        if self._is_built:
            return
        if self.config.learner_connector is not None:
            self._learner_connector = self.config.build_learner_connector(
                input_observation_space=None, input_action_space=None, device=self._device
            )
        self._module = self._make_module()
        self.configure_optimizers()
        self._is_built = True

    def shutdown(self) -> None:
        """Releases what the learner holds besides memory. Subclasses with threads end them here."""

    def _make_module(self) -> MultiRLModule:
        if self._module_obj is not None:
            module: Any = self._module_obj
        elif self._module_spec is not None:
            module = self._module_spec.build()
        else:
            module = self.config.get_multi_rl_module_spec().build()
        module = module.as_multi_rl_module()
        self._module_spec = MultiRLModuleSpec.from_module(module)
        return module

    @property
    def module(self) -> Any:
        """The MultiRLModule; None before `build()`."""
        return self._module

    @property
    def distributed(self) -> bool:
        """Whether several learners average their gradients."""
        return bool(self.config.num_learners > 1)

    def config_for_module(self, module_id: ModuleID) -> Config:
        """The config with the module's overrides. Made once per update, since a loss asks for each minibatch."""
        if module_id not in self._module_configs:
            self._module_configs[module_id] = self.config.get_config_for_module(module_id)
        return self._module_configs[module_id]

    @property
    def node(self) -> str:
        """Name of this learner's host."""
        return self._node

    @property
    def device(self) -> Any:
        """Where the module and its batches are."""
        return self._device

    def rl_module_is_compatible(self, module: RLModule) -> bool:
        """Whether this learner can train the module: it has the APIs of the learner's loss, or a loss of its own."""
        if isinstance(module.unwrapped(), SelfSupervisedLossAPI):
            return True
        return all(isinstance(module.unwrapped(), api) for api in self.rl_module_required_apis())

    @classmethod
    def rl_module_required_apis(cls) -> list[type]:
        """The APIs that modules must implement."""
        return []

    # ---- optimizers

    def configure_optimizers(self) -> None:
        """Registers the optimizers of all modules that this learner can train."""
        for module_id in self.module.keys():  # noqa: SIM118 - not a dict
            if self.rl_module_is_compatible(self.module[module_id]):
                config = self.config_for_module(module_id)
                self.configure_optimizers_for_module(module_id=module_id, config=config)

    @abc.abstractmethod
    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """Registers the optimizers of a module by calls of `register_optimizer`."""

    # ---- the update

    def update(
        self,
        batch: Any = None,
        batches: list[Any] | None = None,
        batch_refs: list[Any] | None = None,
        episodes: list[Any] | None = None,
        episodes_refs: list[Any] | None = None,
        data_iterators: list[Any] | None = None,
        training_data: TrainingData | None = None,
        *,
        rollouts: Mapping[ModuleID, Rollout] | None = None,
        timesteps: dict[str, Any] | None = None,
        num_total_minibatches: int = 0,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        _no_metrics_reduce: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Takes gradient steps on the data.

        Args:
            batch, batches, batch_refs, episodes, episodes_refs, data_iterators, rollouts: the data, in one of these
                forms; see `TrainingData`.
            training_data: the data, instead of one of the others.
            timesteps: NUM_ENV_STEPS_SAMPLED_LIFETIME -> env steps so far, which schedules go by.
            num_total_minibatches: how many to take; 0: as many as cover the data `num_epochs` times.
            num_epochs: passes over the data.
            minibatch_size: rows of a minibatch; None: all rows.
            shuffle_batch_per_epoch: whether rows are in a new order in each of several epochs.
            kwargs: passed on to `batch_iterator` for `data_iterators`.

        Returns:
            The reduced metrics: module id -> name -> value.

        Raises:
            ValueError: no data was given, or data of modules that this learner does not have.
        """
        self._check_is_built()
        self._module_configs.clear()
        timesteps = timesteps or {}
        self.before_gradient_based_update(timesteps=timesteps)
        if training_data is None:
            training_data = TrainingData(
                batch, batches, batch_refs, episodes, episodes_refs, data_iterators, rollouts
            )
        training_data.validate()
        training_data.solve_refs()
        self._weights_seq_no += 1

        steps: dict[ModuleID, list[Any]] = {}
        losses: dict[ModuleID, Any] = {}
        if training_data.data_iterators is not None:
            minibatches = self.batch_iterator(training_data.data_iterators[0], minibatch_size, **kwargs)
        else:
            minibatches = self._minibatches(
                self.batch_from_data(training_data),
                num_total_minibatches,
                num_epochs,
                minibatch_size,
                shuffle_batch_per_epoch and num_epochs > 1,
            )
        for minibatch, is_last in with_end(minibatches):
            self.logs_losses = is_last
            _, losses, _ = self._update(minibatch)
            for module_id, columns in minibatch.items():
                steps.setdefault(module_id, []).append(self._steps_in(columns))
        self.logs_losses = True
        for module_id, loss in losses.items():
            value = loss.detach() if hasattr(loss, "detach") else loss
            self.metrics.log_value((module_id, self.TOTAL_LOSS_KEY), value, window=1)
        is_stream = training_data.data_iterators is not None
        counts = {module_id: [int(each) for each in parts] for module_id, parts in steps.items()}
        self._log_trainable_parameters()
        log_steps_trained(self.metrics, counts, self._weights_seq_no, is_stream=is_stream)
        self.after_gradient_based_update(timesteps=timesteps)
        return None if _no_metrics_reduce else self.metrics.reduce()

    def batch_from_data(self, data: TrainingData) -> Batch:
        """One batch of tensors per module that is to be updated."""
        episodes, rollouts = data.episodes, data.rollouts
        if self._learner_connector is not None and data.batch is None:
            pieces = None if rollouts is None else self._learner_connector.vectorized()
            if rollouts is None or pieces is None:
                return self._only_updated(self._through_connector(episodes, rollouts))
            for piece in pieces:
                rollouts = {module_id: piece.on_rollout(rollout) for module_id, rollout in rollouts.items()}
        if episodes is not None:
            rollouts = rollouts_of(episodes)
        if rollouts is not None:
            self._check_known(rollouts)
            return {
                module_id: self.batch_from_rollout(module_id, rollout)
                for module_id, rollout in rollouts.items()
                if rollout.rows and self.should_module_be_updated(module_id, rollouts)
            }
        return self._only_updated(columns_by_module(data.batch))

    def _through_connector(
        self, episodes: list[Any] | None, rollouts: Mapping[ModuleID, Rollout] | None
    ) -> dict[ModuleID, dict[str, Any]]:
        if episodes is None:
            from ...env.single_agent_episode import SingleAgentEpisode

            episodes = [
                each for rollout in (rollouts or {}).values() for each in SingleAgentEpisode.views_of(rollout)
            ]
        batch = self._learner_connector(
            rl_module=self.module,
            batch={},
            episodes=episodes,
            shared_data={},
            metrics=self.metrics,
        )
        return columns_by_module(batch)

    def _only_updated(self, batch: dict[ModuleID, dict[str, Any]]) -> Batch:
        self._check_known(batch)
        return {
            module_id: self._tensors(columns)
            for module_id, columns in batch.items()
            if self.should_module_be_updated(module_id, batch)
        }

    def _check_known(self, module_ids: Iterable[ModuleID]) -> None:
        unknown = [module_id for module_id in module_ids if module_id not in self.module]
        if unknown:
            raise ValueError(
                f"The data has rows of modules {unknown}, but this learner has {sorted(self.module.keys())}. "
                "Check policy_mapping_fn and policies of config.multi_agent()"
            )

    @abc.abstractmethod
    def batch_from_rollout(self, module_id: ModuleID, rollout: Rollout) -> dict[str, Any]:
        """Column -> tensor, or tree of tensors, [rows, ...] on this learner's device."""

    @abc.abstractmethod
    def _tensors(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The columns as tensors on this learner's device."""

    @abc.abstractmethod
    def _minibatches(
        self,
        batch: Batch,
        num_total_minibatches: int,
        num_epochs: int,
        minibatch_size: int | None,
        shuffle: bool,
    ) -> Iterator[Batch]:
        """The minibatches of an update."""

    def batch_iterator(
        self, source: Any, minibatch_size: int | None, *, num_iters: int | None = None, **kwargs: Any
    ) -> Iterator[Batch]:
        """Minibatches of a stream of batches. The next update goes on where this one stopped.

        Args:
            source: an iterable of batches, or an object with `iter_batches`. It starts again when it is exhausted.
            minibatch_size: rows of a batch, for `iter_batches`.
            num_iters: how many minibatches an update takes.
            kwargs: passed on to `iter_batches`.

        Raises:
            ValueError: `num_iters` is missing.
        """
        if num_iters is None:
            raise ValueError("update(data_iterators=...) needs num_iters, the number of minibatches to take")
        if self.iterator is None:
            self.iterator = endless(source, minibatch_size, kwargs)
        for batch in islice(self.iterator, num_iters):
            yield self._only_updated(columns_by_module(batch))

    def should_module_be_updated(self, module_id: ModuleID, multi_agent_batch: Any = None) -> bool:
        """Whether `policies_to_train` of the config names the module."""
        wanted = self.config.policies_to_train
        if wanted is None:
            return True
        return bool(wanted(module_id, multi_agent_batch)) if callable(wanted) else module_id in wanted

    @abc.abstractmethod
    def _update(self, batch: Batch, **kwargs: Any) -> tuple[Any, dict[ModuleID, Any], dict[str, Any]]:
        """One gradient step.

        Returns:
            What `forward_train` gave, the losses by module, and further metrics.
        """

    def compute_losses(self, *, fwd_out: dict[ModuleID, Any], batch: Batch) -> dict[ModuleID, Any]:
        """Module id -> loss. Override it if losses of several modules depend on each other."""
        losses = {}
        for module_id, out in fwd_out.items():
            module = self.module[module_id].unwrapped()
            arguments = {
                "module_id": module_id,
                "config": self.config_for_module(module_id),
                "batch": batch[module_id],
                "fwd_out": out,
            }
            if isinstance(module, SelfSupervisedLossAPI):
                losses[module_id] = module.compute_self_supervised_loss(learner=self, **arguments)
            else:
                losses[module_id] = self.compute_loss_for_module(**arguments)
        return losses

    @abc.abstractmethod
    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The loss of one module: a scalar tensor.

        Args:
            module_id: the module.
            config: the config with the module's overrides.
            batch: its rows.
            fwd_out: what its `forward_train` gave for them.
        """

    @abc.abstractmethod
    def compute_gradients(self, loss_per_module: dict[ModuleID, Any], **kwargs: Any) -> ParamDict:
        """Parameter -> gradient of the sum of the losses."""

    def postprocess_gradients(self, gradients_dict: ParamDict) -> ParamDict:
        """Changes gradients before they are applied: clips them, module by module."""
        result: ParamDict = {}
        for _, optimizer in self.get_optimizers_for_module(ALL_MODULES):  # of no single module: as they are
            result.update(self.filter_param_dict_for_optimizer(gradients_dict, optimizer))
        for module_id in self.module.keys():  # noqa: SIM118 - not a dict
            own: ParamDict = {}
            for _, optimizer in self.get_optimizers_for_module(module_id):
                own.update(self.filter_param_dict_for_optimizer(gradients_dict, optimizer))
            if own:
                config = self.config_for_module(module_id)
                result.update(
                    self.postprocess_gradients_for_module(
                        module_id=module_id, config=config, module_gradients_dict=own
                    )
                )
        return result

    @abc.abstractmethod
    def postprocess_gradients_for_module(
        self, *, module_id: ModuleID, config: Config | None = None, module_gradients_dict: ParamDict
    ) -> ParamDict:
        """Changes a module's gradients before they are applied."""

    @abc.abstractmethod
    def apply_gradients(self, gradients_dict: ParamDict) -> None:
        """Lets the optimizers make a step with these gradients."""

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Called at the start of an update. Override it for what is not gradients."""

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Called at the end of an update: moves learning rates along their schedules and logs them."""
        rates = self._move_learning_rates(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        for module_id, name, rate in rates:
            self.metrics.log_value((module_id, f"{name}_{LR_KEY}"), rate, window=1)

    # ---- modules come and go

    def add_module(
        self,
        *,
        module_id: ModuleID,
        module_spec: Any,
        config_overrides: dict[str, Any] | None = None,
        new_should_module_be_updated: Any = None,
    ) -> MultiRLModuleSpec:
        """Adds a module and its optimizers.

        Args:
            module_id: its id.
            module_spec: what to build it from.
            config_overrides: settings of the config that are different for it.
            new_should_module_be_updated: the new `policies_to_train`; None: unchanged.

        Returns:
            The specification of all modules.
        """
        validate_module_id(module_id)
        self._check_is_built()
        spec = copy.deepcopy(module_spec)
        spec.inference_only = False
        self.module.add_module(module_id, self._placed(spec.build()))
        self._change_modules(new_should_module_be_updated, added=module_id, overrides=config_overrides)
        if self.rl_module_is_compatible(self.module[module_id]):
            config = self.config_for_module(module_id)
            self.configure_optimizers_for_module(module_id=module_id, config=config)
        return self._module_spec

    def remove_module(
        self, module_id: ModuleID, *, new_should_module_be_updated: Any = None, **kwargs: Any
    ) -> MultiRLModuleSpec:
        """Removes a module and its optimizers.

        Args:
            module_id: its id.
            new_should_module_be_updated: the new `policies_to_train`; None: unchanged.

        Returns:
            The specification of the modules that are left.
        """
        self._check_is_built()
        self._forget_optimizers(module_id)
        self.module.remove_module(module_id)
        self.metrics.delete(module_id, key_error=False)
        self._change_modules(new_should_module_be_updated, removed=module_id)
        return self._module_spec

    def _change_modules(
        self,
        to_train: Any,
        *,
        added: ModuleID | None = None,
        removed: ModuleID | None = None,
        overrides: dict[str, Any] | None = None,
    ) -> None:
        self._module_configs.clear()
        self._module_spec = MultiRLModuleSpec.from_module(self.module)
        record_modules(
            self.config, self._module_spec, to_train, added=added, removed=removed, overrides=overrides
        )

    def _placed(self, module: RLModule) -> RLModule:
        """The module on this learner's device."""
        return module

    # ---- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Weights, optimizers, metrics and counters, as NumPy arrays and plain objects."""
        self._check_is_built()
        state: dict[str, Any] = {
            "should_module_be_updated": self.config.policies_to_train,
            WEIGHTS_SEQ_NO: self._weights_seq_no,
        }
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(
                components=self._get_subcomponents(COMPONENT_RL_MODULE, components),
                not_components=self._get_subcomponents(COMPONENT_RL_MODULE, not_components),
                **kwargs,
            )
        if self._check_component(COMPONENT_OPTIMIZER, components, not_components):
            state[COMPONENT_OPTIMIZER] = self._get_optimizer_state()
        if self._check_component(COMPONENT_METRICS_LOGGER, components, not_components):
            state[COMPONENT_METRICS_LOGGER] = self.metrics.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        self._check_is_built()
        seq_no = state.get(WEIGHTS_SEQ_NO, 0)
        if COMPONENT_RL_MODULE in state:  # an older state, too: training goes back to it
            self.module.set_state(state[COMPONENT_RL_MODULE])
        if COMPONENT_OPTIMIZER in state:
            self._set_optimizer_state(state[COMPONENT_OPTIMIZER])
        if seq_no > 0:
            self._weights_seq_no = seq_no
        if "should_module_be_updated" in state:
            self.config.multi_agent(policies_to_train=state["should_module_be_updated"])
        if COMPONENT_METRICS_LOGGER in state:
            self.metrics.set_state(state[COMPONENT_METRICS_LOGGER])

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What makes an equal learner: `type(self)(*args, **kwargs)`."""
        return (), {"config": self.config, "module_spec": self._module_spec, "module": self._module_obj}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The module has a folder of its own in checkpoints."""
        if not self._is_built:
            self.build()
        return [(COMPONENT_RL_MODULE, self.module)]

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`func(self, *args, **kwargs)`."""
        return func(self, *args, **kwargs)

    # ---- what depends on the framework

    @abc.abstractmethod
    def get_parameters(self, module: RLModule) -> Sequence[Any]:
        """The parameters of a module."""

    # ---- metrics

    def _new_metrics(self) -> MetricsLogger:
        return MetricsLogger(root=False)

    @abc.abstractmethod
    def _log_trainable_parameters(self) -> None:
        """Logs the numbers of parameters."""

    def _steps_in(self, columns: dict[str, Any]) -> Any:
        """Rows that count: of padded batches those that are not padding. An int or, not to wait for it, a tensor."""
        mask = columns.get(Columns.LOSS_MASK)
        return row_count(columns) if mask is None else mask.sum()

    def _check_is_built(self) -> None:
        if not self._is_built:
            raise RuntimeError(f"Call build() of this {type(self).__name__} before other methods")
