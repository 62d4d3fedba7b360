"""Deep Q-networks (Mnih et al. 2015) with the extensions of Rainbow (Hessel et al. 2018), but for noisy layers.

`DQN.training_step` is that of all algorithms that learn from a replay buffer.
"""

from __future__ import annotations

import inspect
import time
from typing import Any, Self

import numpy as np

from runtime.rllib._core.types import ALL_MODULES, DEFAULT_MODULE_ID, ModuleID
from runtime.rllib.algorithms._config.settings import NotProvided, setter
from runtime.rllib.algorithms.algorithm import Algorithm
from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.rl_module.default_model_config import complete_model_config
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec
from runtime.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    REPLAY_BUFFER_ADD_DATA_TIMER,
    REPLAY_BUFFER_RESULTS,
    REPLAY_BUFFER_SAMPLE_TIMER,
    REPLAY_BUFFER_UPDATE_PRIOS_TIMER,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TD_ERROR_KEY,
    TIMERS,
)
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger
from runtime.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from runtime.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer
from runtime.rllib.utils.replay_buffers.utils import (
    make_replay_buffer,
    update_priorities_in_episode_replay_buffer,
)
from runtime.rllib.utils.schedules.scheduler import Scheduler


class ReplayConfig(AlgorithmConfig):
    """What the settings of algorithms with a replay buffer share."""

    replay_buffer_config: dict[str, Any]
    n_step: int | tuple[int, int]

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Time steps per environment of one sample; "auto": the largest `n_step`."""
        if self.rollout_fragment_length != "auto":
            return int(self.rollout_fragment_length)
        return self.n_step if isinstance(self.n_step, int) else max(self.n_step)

    def _set_replay_buffer(self, config: Any) -> None:
        """Merges a `replay_buffer_config`; one of another type replaces the earlier one."""
        if config is NotProvided:
            return
        kind = config.get("type", self.replay_buffer_config.get("type"))
        is_same = kind == self.replay_buffer_config.get("type")
        self.replay_buffer_config = {**(self.replay_buffer_config if is_same else {}), **config}

    def _validate_replay(self) -> None:
        """
        Raises:
            ValueError: a setting is out of its range.
        """
        steps = (self.n_step, self.n_step) if isinstance(self.n_step, int) else tuple(self.n_step)
        if len(steps) != 2 or not 1 <= steps[0] <= steps[1]:
            self._value_error(
                f"n_step must be a positive integer or a pair (lowest, highest), not {self.n_step!r}."
            )
        if not 0 < self.tau <= 1:
            self._value_error(f"tau must be above 0 and at most 1, not {self.tau!r}.")
        if self.training_intensity is not None and self.training_intensity <= 0:
            self._value_error(
                f"training_intensity must be positive or None, not {self.training_intensity!r}."
            )


class DQNConfig(ReplayConfig):
    """Settings of DQN; `build_algo()` makes the algorithm."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DQN)
        self.rollout_fragment_length = "auto"
        self.lr = 5e-4
        self.grad_clip = 40.0
        self.grad_clip_by = "global_norm"
        self.train_batch_size = 32
        self.evaluation_config = {"explore": False}
        self.min_time_s_per_iteration = None
        self.min_sample_timesteps_per_iteration = 1000

        self.epsilon: Any = [(0, 1.0), (10000, 0.05)]
        self.target_network_update_freq = 500
        self.num_steps_sampled_before_learning_starts = 1000
        self.store_buffer_in_checkpoints = False
        self.adam_epsilon = 1e-8
        self.tau = 1.0
        self.num_atoms = 1
        self.v_min = -10.0
        self.v_max = 10.0
        self.noisy = False
        self.sigma0 = 0.5
        self.dueling = True
        self.hiddens = [256]
        self.double_q = True
        self.n_step: int | tuple[int, int] = 1
        self.before_learn_on_batch = None
        self.training_intensity: float | None = None
        self.td_error_loss_fn = "huber"
        self.categorical_distribution_temperature = 1.0
        self.burn_in_len = 0
        self.replay_buffer_config: dict[str, Any] = {
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": 50000,
            "alpha": 0.6,
            "beta": 0.4,
        }

    @setter
    def training(
        self,
        *,
        target_network_update_freq: int = NotProvided,
        replay_buffer_config: dict[str, Any] = NotProvided,
        store_buffer_in_checkpoints: bool = NotProvided,
        epsilon: Any = NotProvided,
        adam_epsilon: float = NotProvided,
        grad_clip: float | None = NotProvided,
        num_steps_sampled_before_learning_starts: int = NotProvided,
        tau: float = NotProvided,
        num_atoms: int = NotProvided,
        v_min: float = NotProvided,
        v_max: float = NotProvided,
        noisy: bool = NotProvided,
        sigma0: float = NotProvided,
        dueling: bool = NotProvided,
        hiddens: list[int] = NotProvided,
        double_q: bool = NotProvided,
        n_step: int | tuple[int, int] = NotProvided,
        before_learn_on_batch: Any = NotProvided,
        training_intensity: float | None = NotProvided,
        td_error_loss_fn: str = NotProvided,
        categorical_distribution_temperature: float = NotProvided,
        burn_in_len: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Settings of the loss and of replay.

        Args:
            target_network_update_freq: env steps between updates of the target networks.
            replay_buffer_config: "type", a name in `utils.replay_buffers`, a dotted path or a class, and its arguments:
                "capacity", and with priorities "alpha" and "beta". Merged with the earlier ones of the same type.
            store_buffer_in_checkpoints: whether checkpoints have the buffer's contents.
            epsilon: probability of random actions: a number, or a schedule [[timestep, value], ...] over env steps.
            adam_epsilon: of the optimizer.
            grad_clip: the limit of gradients, see `grad_clip_by`; None: none.
            num_steps_sampled_before_learning_starts: env steps before the first update.
            tau: how far an update moves target networks: 1 copies the weights.
            num_atoms: 1 learns expected returns, more a distribution on so many values.
            v_min: the lowest of these values.
            v_max: the highest.
            noisy: must be False.
            sigma0: accepted, without effect.
            dueling: whether state values and advantages have a head each.
            hiddens: accepted, without effect: heads are set by `rl_module(model_config=...)`.
            double_q: whether the online network chooses the action whose target value counts.
            n_step: steps whose rewards are summed up, or a pair of bounds to draw them from. Sequences of recurrent
                modules are trained on with single steps, whatever it is.
            before_learn_on_batch: must be None.
            training_intensity: rows trained on per env step sampled; None: one update per sample.
            td_error_loss_fn: "huber" or "mse"; distributions always have the cross-entropy.
            categorical_distribution_temperature: accepted, without effect.
            burn_in_len: first steps of a recurrent module's sequences, which are not trained on.
            kwargs: see `AlgorithmConfig.training`.
        """
        super().training(**kwargs)
        self._set_replay_buffer(replay_buffer_config)
        return self.apply(
            target_network_update_freq=target_network_update_freq,
            store_buffer_in_checkpoints=store_buffer_in_checkpoints,
            epsilon=epsilon,
            adam_epsilon=adam_epsilon,
            grad_clip=grad_clip,
            num_steps_sampled_before_learning_starts=num_steps_sampled_before_learning_starts,
            tau=tau,
            num_atoms=num_atoms,
            v_min=v_min,
            v_max=v_max,
            noisy=noisy,
            sigma0=sigma0,
            dueling=dueling,
            hiddens=hiddens,
            double_q=double_q,
            n_step=n_step,
            before_learn_on_batch=before_learn_on_batch,
            training_intensity=training_intensity,
            td_error_loss_fn=td_error_loss_fn,
            categorical_distribution_temperature=categorical_distribution_temperature,
            burn_in_len=burn_in_len,
        )

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        self._validate_replay()
        if self.noisy:
            self._value_error(
                "noisy=True belongs to the old API stack, whose networks had noisy layers: explore with "
                "config.training(epsilon=...)."
            )
        if self.before_learn_on_batch is not None:
            self._value_error("before_learn_on_batch belongs to the old API stack: use a learner_connector.")
        if self.td_error_loss_fn not in ("huber", "mse"):
            self._value_error(f"td_error_loss_fn must be 'huber' or 'mse', not {self.td_error_loss_fn!r}.")
        if self.num_atoms < 1 or (self.num_atoms > 1 and not self.v_min < self.v_max):
            self._value_error(
                f"num_atoms must be at least 1 and v_min below v_max, not {self.num_atoms}, {self.v_min}, {self.v_max}."
            )
        length = self.model_config.get("max_seq_len")
        if length is not None and 0 < length <= self.burn_in_len:
            self._value_error(
                f"burn_in_len ({self.burn_in_len}) must be less than max_seq_len ({length}), the length of a sequence."
            )
        Scheduler.validate(
            fixed_value_or_schedule=self.epsilon,
            setting_name="epsilon",
            description="probability of a random action",
        )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """A Q network."""
        from runtime.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule

        return RLModuleSpec(module_class=DefaultDQNTorchRLModule, model_config=self.model_config)

    def get_default_learner_class(self) -> type:
        """The learner with DQN's loss."""
        from runtime.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner

        return DQNTorchLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {
            "double_q": self.double_q,
            "dueling": self.dueling,
            "epsilon": self.epsilon,
            "num_atoms": self.num_atoms,
            "v_max": self.v_max,
            "v_min": self.v_min,
        }


def calculate_rr_weights(config: Any) -> tuple[int, int]:
    """How many samples and how many updates a round has, after `training_intensity`.

    Without it, one each: the rows trained on per env step then are the train batch size over the env steps of a sample.
    """
    if not config.training_intensity:
        return 1, 1
    sampled = (
        config.get_rollout_fragment_length() * config.num_envs_per_env_runner * max(config.num_env_runners, 1)
    )
    updates = config.training_intensity * sampled / config.total_train_batch_size
    return (round(1 / updates), 1) if updates < 1 else (1, round(updates))


class DQN(Algorithm):
    """Samples into a replay buffer and learns from batches drawn from it, in turns."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """The defaults."""
        return DQNConfig()

    def setup(self, config: Any) -> None:
        """Builds runners, learners and the replay buffer."""
        super().setup(config)
        self.local_replay_buffer: Any = make_replay_buffer(
            self.config.replay_buffer_config, seed=self.config.seed
        )
        self._needs_episodes = self.config.learner_connector is not None or not isinstance(
            self.local_replay_buffer, EpisodeReplayBuffer
        )
        runner = self.env_runner if self.config.num_env_runners == 0 else None
        self._keeps_metrics = (
            runner is not None and "reduce_metrics" in inspect.signature(runner.collect).parameters
        )
        self._shared_modules: list[Any] = []  # pairs of modules, of the local runner and the local learner

    def training_step(self) -> None:
        """Rounds of sampling and learning, until `min_sample_timesteps_per_iteration` env steps were sampled.

        What the runners and learners report is aggregated once for all rounds.
        """
        config, metrics = self.config, self.metrics
        samples, updates = calculate_rr_weights(config)
        enough = config.min_sample_timesteps_per_iteration or 1
        env_steps = first = metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0)
        agents = metrics.peek((ENV_RUNNER_RESULTS, NUM_AGENT_STEPS_SAMPLED_LIFETIME), default={})
        agent_steps = sum(agents.values())
        stopwatch, reports, results = _Stopwatch(), [], []
        while env_steps - first < enough:
            before = env_steps
            for _ in range(samples):
                collected = self._collect()
                stopwatch.lap(ENV_RUNNER_SAMPLING_TIMER)
                for each in collected:
                    env_steps += each.env_steps
                    agent_steps += each.agent_steps
                    self._store(each)
                    if each.metrics:
                        reports.append(each.metrics)
                stopwatch.lap(REPLAY_BUFFER_ADD_DATA_TIMER)
            if env_steps == before:
                break  # no runner answered in time
            now = agent_steps if config.count_steps_by == "agent_steps" else env_steps
            if now >= config.num_steps_sampled_before_learning_starts:
                timesteps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: env_steps}
                for _ in range(updates):
                    results += self._learn(timesteps, stopwatch)
                self._update_runners()
                stopwatch.lap(SYNCH_WORKER_WEIGHTS_TIMER)
        if self._keeps_metrics:
            reports.append(self.env_runner.get_metrics())
        metrics.aggregate(reports, key=ENV_RUNNER_RESULTS)
        learner = self._local_learner()
        if learner is not None:
            results.append(learner.reduce_metrics())
        if results:
            metrics.aggregate(results, key=LEARNER_RESULTS)
        if hasattr(self.local_replay_buffer, "get_metrics"):
            metrics.aggregate([self.local_replay_buffer.get_metrics()], key=REPLAY_BUFFER_RESULTS)
        for name, seconds in stopwatch.means().items():
            metrics.log_value((TIMERS, name), seconds)

    def _collect(self) -> list[Any]:
        if self._keeps_metrics:
            return [self.env_runner.collect(reduce_metrics=False)]
        collected: list[Any] = self.env_runner_group.collect(timeout_s=self.config.sample_timeout_s)
        return collected

    def _store(self, collected: Any) -> None:
        if self._needs_episodes:
            episodes = collected.episodes
            if episodes is None:
                from runtime.rllib.env.single_agent_episode import SingleAgentEpisode

                episodes = [
                    e for rollout in collected.rollouts.values() for e in SingleAgentEpisode.views_of(rollout)
                ]
            self.local_replay_buffer.add(episodes)
        else:
            self.local_replay_buffer.add(collected.rollouts)

    def _learn(self, timesteps: dict[str, int], stopwatch: _Stopwatch) -> list[Any]:
        """One update. Results; none of a learner in this process, which keeps its metrics until they are asked for."""
        config, buffer = self.config, self.local_replay_buffer
        if self._needs_episodes:
            episodes = buffer.sample(
                num_items=config.total_train_batch_size,
                n_step=config.n_step,
                gamma=config.gamma,
                beta=config.replay_buffer_config.get("beta", 0.0),
                sample_episodes=True,
            )
            stopwatch.lap(REPLAY_BUFFER_SAMPLE_TIMER)
            results: list[Any] = self.learner_group.update(episodes=episodes, timesteps=timesteps)
            errors = _pop_errors(results)
            if config.num_learners == 0:
                errors = {
                    module_id: each.cpu() for module_id, each in self.learner_group._learner.td_errors.items()
                }
            stopwatch.lap(LEARNER_UPDATE_TIMER)
            update_priorities_in_episode_replay_buffer(replay_buffer=buffer, td_errors=errors)
            stopwatch.lap(REPLAY_BUFFER_UPDATE_PRIOS_TIMER)
            return results
        batch = self._draw()
        stopwatch.lap(REPLAY_BUFFER_SAMPLE_TIMER)
        learner = self._local_learner()
        if learner is not None:
            learner.update_once(batch, timesteps)
            results, errors = [], {module_id: each.cpu() for module_id, each in learner.td_errors.items()}
        else:
            results = self.learner_group.update(batch=batch, timesteps=timesteps)
            errors = _pop_errors(results)
        stopwatch.lap(LEARNER_UPDATE_TIMER)
        if isinstance(buffer, PrioritizedEpisodeReplayBuffer):
            for module_id, columns in batch.items():
                if module_id in errors:
                    rows = np.asarray(errors[module_id])[: len(columns[Columns.REWARDS])]
                    buffer.update_priorities(rows, module_id)
            stopwatch.lap(REPLAY_BUFFER_UPDATE_PRIOS_TIMER)
        return results

    def _draw(self) -> dict[ModuleID, dict[str, Any]]:
        """A batch for each module that is trained and has experience."""
        buffer, batch = self.local_replay_buffer, {}
        for module_id in buffer.get_module_ids():
            if not self.config.is_trained(module_id):
                continue
            config = self.config.get_config_for_module(module_id)
            rows, length = config.total_train_batch_size, self._sequence_length(module_id)
            batch[module_id] = buffer.draw(
                module_id,
                max(rows // length, 1) if length else rows,
                n_step=config.n_step,
                gamma=config.gamma,
                beta=buffer.beta,
                length=length,
            )
        return batch

    def _sequence_length(self, module_id: ModuleID) -> int:
        """Steps of a recurrent module's sequences; 0: the module has no state."""
        known: dict[ModuleID, int] = self.__dict__.setdefault("_sequence_lengths", {})
        if module_id not in known:
            module = self.get_module(module_id)
            is_stateful = module is not None and module.is_stateful()
            known[module_id] = (
                int(complete_model_config(module.model_config)["max_seq_len"]) if is_stateful else 0
            )
        return known[module_id]

    def _local_learner(self) -> Any:
        """The learner in this process, if it keeps metrics until they are asked for; else None."""
        learner = getattr(self.learner_group, "_learner", None)
        return learner if hasattr(learner, "reduce_metrics") and not self._needs_episodes else None

    def _update_runners(self) -> None:
        """Gives runners the learners' weights.

        The runner in this process has the learner's own tensors as weights, if both are on the CPU: nothing is copied,
        however often the weights change. `_share_weights` checks that they still are the same modules.
        """
        if self.config.num_env_runners == 0 and self._share_weights():
            return
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True
        )

    def _share_weights(self) -> bool:
        learner, runner = getattr(self.learner_group, "_learner", None), self.env_runner
        if learner is None or runner is None or str(learner.device) != "cpu":
            return False
        acting = runner.module
        pairs = [(acting, learner.module[DEFAULT_MODULE_ID])] if DEFAULT_MODULE_ID in learner.module else []
        if hasattr(acting, "keys"):
            pairs = [(acting[module_id], learner.module[module_id]) for module_id in acting.keys()]  # noqa: SIM118 - not a dict
        if len(pairs) == len(self._shared_modules) and all(
            one is other
            for pair, known in zip(pairs, self._shared_modules, strict=True)
            for one, other in zip(pair, known, strict=True)
        ):
            return True
        for acts, learns in pairs:
            source = learns.unwrapped().state_dict(keep_vars=True)
            for name, tensor in acts.unwrapped().state_dict(keep_vars=True).items():
                tensor.data = source[name].data
        self._shared_modules = pairs
        return True

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As `Algorithm.get_state`; with `store_buffer_in_checkpoints` the buffer, too."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        if self.config.store_buffer_in_checkpoints:
            state["local_replay_buffer"] = self.local_replay_buffer.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        if "local_replay_buffer" in state:
            self.local_replay_buffer.set_state(state["local_replay_buffer"])


class _Stopwatch:
    """Seconds per part of a round; a lap is the time since the last lap."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Adds the time since the last lap to a part."""
        now = time.perf_counter()
        self._sums[name] = self._sums.get(name, 0.0) + now - self._last
        self._counts[name] = self._counts.get(name, 0) + 1
        self._last = now

    def means(self) -> dict[str, float]:
        """Mean seconds of each part's laps."""
        return {name: total / self._counts[name] for name, total in self._sums.items()}


def _pop_errors(results: list[dict[ModuleID, Any]]) -> dict[ModuleID, np.ndarray]:
    """Takes the errors of rows out of learners' results, joined in the order of the batch."""
    errors: dict[ModuleID, list[Any]] = {}
    for result in results:
        for module_id, values in result.items():
            if module_id != ALL_MODULES and TD_ERROR_KEY in values:
                errors.setdefault(module_id, []).extend(MetricsLogger.peek_results(values.pop(TD_ERROR_KEY)))
    return {
        module_id: np.concatenate([np.atleast_1d(each) for each in parts])
        for module_id, parts in errors.items()
    }
