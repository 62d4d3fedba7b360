"""Episodes through pipelines (the slow path) and whole columns (the fast path) give the same batches."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from runtime.rllib._core import trees
from runtime.rllib.connectors.connector_v2 import ConnectorV2
from runtime.rllib.connectors.env_to_module import (
    AddObservationsFromEpisodesToBatch,
    BatchIndividualItems,
    EnvToModulePipeline,
    FlattenObservations,
    FrameStackingEnvToModule,
    MeanStdFilter,
    PrevActionsPrevRewards,
)
from runtime.rllib.connectors.learner import AddNextObservationsFromEpisodesToTrainBatch
from runtime.rllib.connectors.vector_step import VectorStep
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode

ENVS = 3


class Walk(gym.Env):
    """Observations of several kinds; episodes of two to six steps."""

    observation_space = spaces.Dict(
        {"where": spaces.Box(-9.0, 9.0, (2,), np.float32), "phase": spaces.Discrete(3)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.end = 0, int(self.np_random.integers(2, 7))
        return self._observation(), {}

    def step(self, action):
        self.t += 1
        return self._observation(), float(action), self.t >= self.end, False, {}

    def _observation(self):
        return {"where": self.np_random.normal(size=2).astype(np.float32), "phase": np.int64(self.t % 3)}


class Pixel(Walk):
    observation_space = spaces.Box(-9.0, 9.0, (2, 2, 1), np.float32)

    def _observation(self):
        return self.np_random.normal(size=(2, 2, 1)).astype(np.float32)


def observed(pipeline, env_cls, *, fast, steps=25):
    """What the module gets at each step of the environments: as columns, or from episodes."""
    envs = [env_cls() for _ in range(ENVS)]
    rng = np.random.default_rng(0)
    pieces = pipeline.vectorized()
    assert pieces is not None

    def from_columns(observations, numbers, is_first, actions=None, rewards=None):
        first = np.full(len(numbers), is_first)
        step = VectorStep(trees.stack(observations), np.array(numbers), first, actions, rewards)
        for piece in pieces:
            step.observations = piece.on_vector_step(step)
        return step.observations

    def from_episodes(chosen):
        return pipeline(rl_module=None, batch={}, episodes=chosen)["obs"]

    seen = []
    first = [env.reset(seed=number)[0] for number, env in enumerate(envs)]
    episodes = [SingleAgentEpisode(observations=[obs]) for obs in first]
    for episode in episodes:
        episode.action_space = env_cls.action_space
    seen.append(from_columns(first, range(ENVS), True) if fast else from_episodes(episodes))
    for _ in range(steps):
        actions = rng.integers(0, 3, ENVS)
        results = [env.step(int(action)) for env, action in zip(envs, actions, strict=True)]
        for episode, action, (obs, reward, terminated, _, _) in zip(episodes, actions, results, strict=True):
            episode.add_env_step(obs, action, reward, terminated=terminated)
        rewards = np.array([reward for _, reward, *_ in results], np.float32)
        if fast:
            seen.append(from_columns([obs for obs, *_ in results], range(ENVS), False, actions, rewards))
        else:
            seen.append(from_episodes(episodes))
        done = [number for number, (_, _, terminated, _, _) in enumerate(results) if terminated]
        for number in done:
            episodes[number] = SingleAgentEpisode(observations=[envs[number].reset()[0]])
            episodes[number].action_space = env_cls.action_space
        if done and fast:
            seen.append(from_columns(_last_raw(done, episodes), done, True))
        elif done:
            seen.append(from_episodes([episodes[number] for number in done]))
    return seen


def _last_raw(numbers, episodes):
    return [episodes[number].get_observations(-1) for number in numbers]


@pytest.mark.parametrize(
    ("env_cls", "pieces"),
    [
        (Walk, lambda: [FlattenObservations()]),
        (Walk, lambda: [MeanStdFilter(), FlattenObservations(keys_to_remove=["phase"])]),
        (Walk, lambda: [PrevActionsPrevRewards(n_prev_actions=2, n_prev_rewards=3), FlattenObservations()]),
        (Pixel, lambda: [FrameStackingEnvToModule(num_frames=3)]),
        (Pixel, lambda: [MeanStdFilter(), FrameStackingEnvToModule(num_frames=2)]),
    ],
)
def test_modules_get_the_same_observations(env_cls, pieces):
    def pipeline():
        return EnvToModulePipeline(
            env_cls.observation_space,
            env_cls.action_space,
            connectors=[*pieces(), AddObservationsFromEpisodesToBatch(), BatchIndividualItems()],
        )

    slow = observed(pipeline(), env_cls, fast=False)
    fast = observed(pipeline(), env_cls, fast=True)
    assert len(slow) == len(fast) > 30
    space = pipeline().observation_space
    for one, other in zip(slow, fast, strict=True):
        assert np.allclose(one, other, atol=1e-6)
        assert one.shape[1:] == other.shape[1:] == space.shape
        assert other.dtype == space.dtype


class Nothing(ConnectorV2):
    """A user's piece, which makes the learner go through episodes."""

    def __call__(self, *, batch, **kwargs):
        return batch


@pytest.fixture
def ppo():
    """A function: the runner's rollouts, and learners of PPO of the same weights with different connectors."""
    pytest.importorskip("torch")
    from runtime.rllib.algorithms.ppo import PPOConfig
    from runtime.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    def make(model_config, *connectors):
        config = PPOConfig().environment("CartPole-v1").rl_module(model_config=model_config)
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=4).debugging(seed=1)
        runner = SingleAgentEnvRunner(config=config)
        spec = config.get_multi_rl_module_spec(env=runner.env, inference_only=False)
        learners = []
        for connector in connectors:
            settings = config.copy(copy_frozen=False).learners(learner_connector=connector)
            learner = settings.get_default_learner_class()(config=settings, module_spec=spec)
            learner.build()
            learner.module.set_state((learners or [learner])[0].module.get_state())
            learners.append(learner)
        return runner.collect(env_steps=200).rollouts, learners

    return make


@pytest.mark.parametrize("model_config", [{}, {"use_lstm": True, "max_seq_len": 5, "lstm_cell_size": 8}])
def test_learners_of_ppo_get_the_same_batches(ppo, model_config):
    from runtime.rllib.core.learner.training_data import TrainingData

    data, learners = ppo(model_config, None, lambda *spaces: Nothing())
    fast, slow = (
        learner.batch_from_data(TrainingData(rollouts=data))["default_policy"] for learner in learners
    )
    names = {"obs", "actions", "action_logp", "action_dist_inputs", "advantages", "value_targets"}
    assert names <= fast.keys() & slow.keys()
    rows_of_fast = fast["loss_mask"].bool() if "loss_mask" in fast else slice(None)
    rows_of_slow = slow["loss_mask"].bool()
    for name in names:
        assert np.allclose(fast[name][rows_of_fast], slow[name][rows_of_slow], atol=1e-5), name


def test_learners_stay_with_columns_if_their_pieces_do(ppo):
    from runtime.rllib.core.learner.training_data import TrainingData

    class Doubled(AddNextObservationsFromEpisodesToTrainBatch):
        def on_rollout(self, rollout):
            rollout = super().on_rollout(rollout)
            return dataclasses.replace(
                rollout, columns={**rollout.columns, "obs": 2 * rollout.columns["obs"]}
            )

    data, (plain, doubled) = ppo({}, None, lambda *spaces: Doubled())
    before, after = (
        learner.batch_from_data(TrainingData(rollouts=data))["default_policy"] for learner in (plain, doubled)
    )
    assert len(after["obs"]) == data["default_policy"].rows
    assert np.allclose(after["obs"], 2 * before["obs"])
