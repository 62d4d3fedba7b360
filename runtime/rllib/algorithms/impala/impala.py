"""IMPALA (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ...core.learner.learner_actor import STATE_AFTER_UPDATE
from ...core.rl_module.rl_module import RLModuleSpec
from ...utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    LEARNER_GROUP,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    MEAN_NUM_EPISODE_LISTS_RECEIVED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_SYNCH_WORKER_WEIGHTS,
    SAMPLE_TIMER,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from ...utils.schedules.scheduler import Scheduler
from .._config.settings import NotProvided, setter
from ..algorithm import Algorithm
from ..algorithm_config import AlgorithmConfig
from ..on_policy import log_updates_ahead, train_batch

WAIT_FOR_SAMPLES_S = 1.0
"""How long a training step waits for a runner's first sample: it may then report, evaluate and look after runners."""
BROADCASTS_REMEMBERED = 1000
"""Samples of older weights count as those of the first ones in the report."""
WAIT_FOR_LEARNERS_S = 1.0
"""How long a training step waits for learners that are behind before it lets them go on and looks for samples again."""


class IMPALAConfig(AlgorithmConfig):
    """Settings of IMPALA; `build_algo()` makes the algorithm."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or IMPALA)
        self.lr = 0.0005
        self.grad_clip = 40.0
        self.grad_clip_by = "global_norm"
        self.num_learners = 1
        self.rollout_fragment_length = 50
        self.train_batch_size = 500
        self.num_env_runners = 2
        self.min_time_s_per_iteration = 10

        self.vtrace = True
        self.vtrace_clip_rho_threshold: float | None = 1.0
        self.vtrace_clip_pg_rho_threshold: float | None = 1.0
        self.vf_loss_coeff = 0.5
        self.entropy_coeff: Any = 0.01
        self.broadcast_interval = 1
        self.learner_queue_size = 3
        self.num_gpu_loader_threads = 8
        self.timeout_s_sampler_manager = 0.0
        self.timeout_s_aggregator_manager = 0.0

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """PPO's actor-critic module."""
        from ..ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule

        return RLModuleSpec(module_class=DefaultPPOTorchRLModule)

    def get_default_learner_class(self) -> type:
        """The learner with IMPALA's loss."""
        from .torch.impala_torch_learner import IMPALATorchLearner

        return IMPALATorchLearner

    @setter
    def training(
        self,
        *,
        vtrace: bool = NotProvided,
        vtrace_clip_rho_threshold: float | None = NotProvided,
        vtrace_clip_pg_rho_threshold: float | None = NotProvided,
        num_gpu_loader_threads: int = NotProvided,
        learner_queue_size: int = NotProvided,
        timeout_s_sampler_manager: float = NotProvided,
        timeout_s_aggregator_manager: float = NotProvided,
        broadcast_interval: int = NotProvided,
        grad_clip: float | None = NotProvided,
        vf_loss_coeff: float = NotProvided,
        entropy_coeff: Any = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Settings of the loss and of the asynchronous training step.

        Args:
            vtrace: must be True: experience is older than the policy, and V-trace corrects for that.
            vtrace_clip_rho_threshold: bound of the importance weights of value targets; None: not clipped.
            vtrace_clip_pg_rho_threshold: bound of the weights of advantages; None: not clipped.
            num_gpu_loader_threads: has no effect: a learner copies a batch to its GPU when it gets it.
            learner_queue_size: has no effect: see `max_requests_in_flight_per_learner` of `learners()`.
            timeout_s_sampler_manager: has no effect: a step takes what has arrived.
            timeout_s_aggregator_manager: has no effect: batches are put together where they are learned from.
            broadcast_interval: updates between two broadcasts of weights to the runners.
            grad_clip: the limit of gradients, see `grad_clip_by`; None: none.
            vf_loss_coeff: coefficient of the value loss.
            entropy_coeff: coefficient of the entropy bonus, or a schedule [[timestep, value], ...].
            kwargs: see `AlgorithmConfig.training`.
        """
        super().training(**kwargs)
        self.warn_without_effect(
            "set max_requests_in_flight_per_learner of learners()", learner_queue_size=learner_queue_size
        )
        self.warn_without_effect(
            "batches are put together, and copied to a GPU, where they are learned from, when they have arrived",
            num_gpu_loader_threads=num_gpu_loader_threads,
            timeout_s_sampler_manager=timeout_s_sampler_manager,
            timeout_s_aggregator_manager=timeout_s_aggregator_manager,
        )
        return self.apply(
            vtrace=vtrace,
            vtrace_clip_rho_threshold=vtrace_clip_rho_threshold,
            vtrace_clip_pg_rho_threshold=vtrace_clip_pg_rho_threshold,
            num_gpu_loader_threads=num_gpu_loader_threads,
            learner_queue_size=learner_queue_size,
            timeout_s_sampler_manager=timeout_s_sampler_manager,
            timeout_s_aggregator_manager=timeout_s_aggregator_manager,
            broadcast_interval=broadcast_interval,
            grad_clip=grad_clip,
            vf_loss_coeff=vf_loss_coeff,
            entropy_coeff=entropy_coeff,
        )

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        if not self.vtrace:
            raise ValueError("vtrace=False is not supported: set config.training(vtrace=True)")
        if self.broadcast_interval < 1:
            raise ValueError(f"broadcast_interval must be at least 1, not {self.broadcast_interval}")
        if self.minibatch_size is not None and self.minibatch_size > self.total_train_batch_size:
            raise ValueError(
                f"minibatch_size ({self.minibatch_size}) must be at most the train batch size of all learners "
                f"({self.total_train_batch_size})"
            )
        Scheduler.validate(
            fixed_value_or_schedule=self.entropy_coeff,
            setting_name="entropy_coeff",
            description="entropy coefficient",
        )


class IMPALA(Algorithm):
    """Learns from what runners have sampled while they sample on, with weights that may be some updates old.

    Each runner always has a call in flight. Samples are put together to train batches; learners in actors work at
    batches side by side with the runners, a learner in this process between two looks at them.
    """

    @classmethod
    def get_default_config(cls) -> IMPALAConfig:
        """The defaults."""
        return IMPALAConfig()

    def setup(self, config: Any) -> None:
        """Builds runners and learners."""
        super().setup(config)
        self._waiting_samples: list[Any] = []  # since the latest update
        self._updates_since_broadcast = 0  # since the latest broadcast
        self._updates_sent = self._updates_done = 0
        self._updates_in_weights: dict[
            int, int
        ] = {}  # number of broadcast weights -> updates that they include
        self._updates_ahead = 0.0  # of the policy that sampled the latest batch

    def training_step(self) -> None:
        """Takes what runners have sampled, and learns from each full train batch of it."""
        with self.metrics.log_time((TIMERS, SAMPLE_TIMER)):
            fresh = self._fresh_samples()
            self.metrics.log_value((ENV_RUNNER_RESULTS, MEAN_NUM_EPISODE_LISTS_RECEIVED), len(fresh))
        self._waiting_samples += fresh
        size = self.config.total_train_batch_size
        steps = 0
        batch: list[Any] = []
        waiting, self._waiting_samples = self._waiting_samples, []
        for sample in waiting:
            batch.append(sample)
            steps += sample.env_steps
            if steps >= size:
                self._learn(batch)
                batch, steps = [], 0
        self._waiting_samples = batch
        if self.config.num_learners > 0:
            self._take_results(self.learner_group.update_results())
        for name, value in self.learner_group.get_stats().items():
            self.metrics.log_value((LEARNER_GROUP, name), value, window=1)

    def _fresh_samples(self) -> list[Any]:
        """What runners have sampled since the last call. They go on with the next sample at once."""
        group = self.env_runner_group
        if group.num_remote_env_runners() == 0:
            fresh = group.collect(timeout_s=self.config.sample_timeout_s)
        else:
            group.collect_async()
            fresh = [sample for _, sample in group.ready(timeout_s=WAIT_FOR_SAMPLES_S)]
            group.collect_async()
        fresh = [sample for sample in fresh if sample.env_steps]
        if fresh:
            self.metrics.aggregate([sample.metrics for sample in fresh], key=ENV_RUNNER_RESULTS)
        return fresh

    def _learn(self, batch: list[Any]) -> None:
        config, group = self.config, self.learner_group
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            if config.num_learners > 0:
                group.wait_for_room(WAIT_FOR_LEARNERS_S)
            data = train_batch(batch)
            self._updates_sent += 1
            known = [self._updates_in_weights.get(number, 0) for number in data.weights_seqs]
            self._updates_ahead = self._updates_sent - float(np.mean(known))
            results = group.update(
                **data.data(config),
                async_update=config.num_learners > 0,
                return_state=config.num_learners > 0,
                timesteps={
                    NUM_ENV_STEPS_SAMPLED_LIFETIME: self.metrics.peek(
                        (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0
                    ),
                    NUM_ENV_STEPS_TRAINED_LIFETIME: self.metrics.peek(
                        (LEARNER_RESULTS, ALL_MODULES, NUM_ENV_STEPS_TRAINED_LIFETIME), default=0
                    ),
                },
                num_epochs=config.num_epochs,
                minibatch_size=config.minibatch_size,
                shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
            )
        self._take_results(results)

    def _take_results(self, results: list[Any]) -> None:
        """Logs results of updates, and broadcasts the weights when it is time."""
        if not results:
            return
        weights = None
        for result in results:
            weights = result.pop(STATE_AFTER_UPDATE, weights)
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        log_updates_ahead(self.metrics, results, self._updates_ahead)
        updates = max(1, len(results) // max(1, self.config.num_learners))
        self._updates_done += updates
        self._updates_since_broadcast += updates
        if self._updates_since_broadcast < self.config.broadcast_interval:
            return
        self._updates_since_broadcast = 0
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            source = self.learner_group if weights is None else _Weights(weights)
            self.env_runner_group.sync_weights(from_worker_or_learner_group=source, inference_only=True)
        self.metrics.log_value(NUM_SYNCH_WORKER_WEIGHTS, 1, reduce="sum")
        self._updates_in_weights[self.env_runner_group.weights_seq] = self._updates_done
        if len(self._updates_in_weights) > BROADCASTS_REMEMBERED:
            del self._updates_in_weights[next(iter(self._updates_in_weights))]


class _Weights:
    """Weights that came with a result: a source for `sync_weights` that need not ask a learner."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self._weights = weights

    def get_weights(self, policies: Any = None, *, inference_only: bool = False) -> dict[str, Any]:
        """The weights by module."""
        return {name: each for name, each in self._weights.items() if policies is None or name in policies}


Impala = IMPALA
ImpalaConfig = IMPALAConfig
