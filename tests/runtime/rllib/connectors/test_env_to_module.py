"""Pieces between environment and module."""

import math
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from runtime.rllib.connectors.common.add_states_from_episodes_to_batch import AddStatesFromEpisodesToBatch
from runtime.rllib.connectors.common.add_time_dim_to_batch_and_zero_pad import AddTimeDimToBatchAndZeroPad
from runtime.rllib.connectors.env_to_module import (
    AddObservationsFromEpisodesToBatch,
    AgentToModuleMapping,
    BatchIndividualItems,
    FlattenObservations,
    FrameStackingEnvToModule,
    MeanStdFilter,
    MultiAgentObservationPreprocessor,
    NumpyToTensor,
    PrevActionsPrevRewards,
    SingleAgentObservationPreprocessor,
    WriteObservationsToEpisodes,
)
from runtime.rllib.connectors.env_to_module.mean_std_filter import RunningStats, _moments
from runtime.rllib.connectors.vector_step import VectorStep
from runtime.rllib.env.multi_agent_episode import MultiAgentEpisode
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode

MIXED = spaces.Dict(
    {
        "b": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2, 1), np.float32)]),
        "a": spaces.Box(-9.0, 9.0, (), np.float32),
        "c": spaces.MultiDiscrete([2, 3]),
        "d": spaces.MultiBinary(2),
        "e": spaces.Discrete(2, start=5),
    }
)
VALUE = {
    "a": np.float32(-7),
    "b": (1, np.array([[0.5], [0.25]], np.float32)),
    "c": np.array([1, 2]),
    "d": np.array([1, 0], np.int8),
    "e": np.int64(5),
}
FLAT = [-7, 0, 1, 0.5, 0.25, 0, 1, 0, 0, 1, 1, 0, 1, 0]


class Stateful:
    """A recurrent module with a state of two numbers."""

    model_config = {"max_seq_len": 2}

    def is_stateful(self):
        return True

    def get_initial_state(self):
        return {"h": np.zeros(2, np.float32)}


def run(piece, episodes, *, batch=None, rl_module=None, shared_data=None):
    shared_data = {} if shared_data is None else shared_data
    return piece(
        rl_module=rl_module, batch={} if batch is None else batch, episodes=episodes, shared_data=shared_data
    )


def started(*observations, **kwargs):
    """Episodes with only a first observation."""
    return [SingleAgentEpisode(f"e{i}", observations=[obs], **kwargs) for i, obs in enumerate(observations)]


def step_of(observations, **kwargs):
    rows = len(observations) if isinstance(observations, np.ndarray) else 2
    return VectorStep(observations, np.arange(rows), np.zeros(rows, bool), **kwargs)


def multi_agent(**observations):
    episode = MultiAgentEpisode("m", agent_to_module_mapping_fn=lambda agent, episode: f"{agent}_module")
    episode.add_env_reset(observations=observations, infos={})
    return episode


# ------------------------------------------------------------ default pieces


def test_the_last_observations_are_added_unless_there_are_some():
    episodes = started(1, 2)
    assert run(AddObservationsFromEpisodesToBatch(), episodes) == {"obs": {("e0",): [1], ("e1",): [2]}}
    assert run(AddObservationsFromEpisodesToBatch(), episodes, batch={"obs": [9]}) == {"obs": [9]}


def test_batches_remember_whose_rows_are_where():
    shared = {}
    episodes = started(np.float32(1), np.float32(2))
    batch = run(AddObservationsFromEpisodesToBatch(), episodes)
    batch = run(BatchIndividualItems(), episodes, batch=batch, shared_data=shared)
    assert batch["obs"].tolist() == [1, 2]
    assert shared["memorized_map_structure"] == ["e0", "e1"]


def test_states_are_the_modules_first_then_its_last_outputs():
    first, later = started(0.0, 0.0)
    later.add_env_step(1.0, 0, 1.0, extra_model_outputs={"state_out": {"h": np.array([3.0, 4.0])}})
    module = Stateful()
    batch = run(AddStatesFromEpisodesToBatch(), [first, later], rl_module=module)
    states = [batch["state_in"][(id_,)][0]["h"].tolist() for id_ in ("e0", "e1")]
    assert states == [[0, 0], [3, 4]]
    assert run(AddStatesFromEpisodesToBatch(), [first], rl_module=None) == {}


def test_items_of_stateful_modules_get_a_time_dimension():
    shared = {}
    episodes = started(np.zeros(3), np.ones(3))
    batch = run(AddObservationsFromEpisodesToBatch(), episodes)
    batch = run(
        AddTimeDimToBatchAndZeroPad(), episodes, batch=batch, rl_module=Stateful(), shared_data=shared
    )
    batch = run(BatchIndividualItems(), episodes, batch=batch, rl_module=Stateful())
    assert batch["obs"].shape == (2, 1, 3)
    assert shared["_added_single_ts_time_rank"]


def test_agents_are_mapped_to_modules():
    episode = multi_agent(A=np.zeros(2), B=np.ones(2))
    shared = {}
    batch = run(AddObservationsFromEpisodesToBatch(), [episode])
    piece = AgentToModuleMapping(
        rl_module_specs={"A_module": None, "B_module": None}, agent_to_module_mapping_fn=None
    )
    batch = run(piece, [episode], batch=batch, shared_data=shared)
    batch = run(BatchIndividualItems(multi_agent=True), [episode], batch=batch)
    assert {module: columns["obs"].tolist() for module, columns in batch.items()} == {
        "A_module": [[0, 0]],
        "B_module": [[1, 1]],
    }
    assert shared["memorized_map_structure"] == {"A_module": [("m", "A")], "B_module": [("m", "B")]}


def test_spaces_of_modules_are_those_of_their_agents():
    agents = spaces.Dict({"A": spaces.Discrete(2), "B": spaces.Discrete(3), "C": spaces.Discrete(3)})

    def mapping(agent, episode):
        return {"A": "p", "B": "q", "C": "q"}[agent]

    def piece(fn, modules=("p", "q")):
        return AgentToModuleMapping(
            agents, agents, rl_module_specs=set(modules), agent_to_module_mapping_fn=fn
        )

    assert piece(mapping).observation_space == spaces.Dict({"p": spaces.Discrete(2), "q": spaces.Discrete(3)})
    with pytest.raises(ValueError, match="different"):
        piece(lambda agent, episode: "p", ["p"])
    with pytest.raises(ValueError, match="no agent maps"):
        piece(lambda agent, episode: "p", ["q"])


def test_arrays_become_tensors_but_not_infos():
    torch = pytest.importorskip("torch")
    batch = {
        "obs": {"a": np.zeros((2, 1)), "b": (np.arange(2), np.ones(2, bool))},
        "infos": [{"x": np.zeros(1)}],
        "eps_id": np.array(["a", "b"]),
        "m": {"obs": np.arange(4.0)[::-1]},
    }
    result = run(NumpyToTensor(device="cpu"), [], batch=batch, rl_module=Stateful())
    assert result["obs"]["a"].dtype is torch.float32
    assert [leaf.dtype for leaf in result["obs"]["b"]] == [torch.int64, torch.bool]
    assert result["m"]["obs"].tolist() == [3, 2, 1, 0]
    assert result["infos"] is batch["infos"]
    assert result["eps_id"] is batch["eps_id"]


# ------------------------------------------------------------ flattening


def test_flattened_observations_replace_those_in_the_episodes():
    piece = FlattenObservations(MIXED)
    (episode,) = started(VALUE)
    run(piece, [episode])
    assert episode.get_observations(-1).tolist() == FLAT
    assert piece.observation_space == episode.observation_space
    assert piece.observation_space.shape == (len(FLAT),)


def test_whole_columns_are_flattened_alike():
    many = [MIXED.sample() for _ in range(5)]
    piece = FlattenObservations(MIXED)
    episodes = started(*many)
    run(piece, episodes)
    from runtime.rllib._core import trees

    columns = piece.on_vector_step(step_of(trees.stack(many)))
    assert columns.dtype == np.float32
    assert np.array_equal(columns, [episode.get_observations(-1) for episode in episodes])


def test_keys_can_be_left_out():
    piece = FlattenObservations(MIXED, keys_to_remove=["a", "b", "c", "d"])
    (episode,) = started(VALUE)
    run(piece, [episode])
    assert episode.get_observations(-1).tolist() == [1, 0]
    with pytest.raises(ValueError, match="keys_to_remove"):
        FlattenObservations(spaces.Discrete(3), keys_to_remove=["a"])


def test_only_some_agents_are_flattened():
    space = spaces.Dict({"A": spaces.Discrete(2), "B": spaces.Discrete(3)})
    piece = FlattenObservations(space, multi_agent=True, agent_ids=["B"])
    assert piece.observation_space["A"] == spaces.Discrete(2)
    assert piece.observation_space["B"].shape == (3,)
    episode = multi_agent(A=1, B=2)
    run(piece, [episode])
    assert episode.agent_episodes["A"].get_observations(-1) == 1
    assert episode.agent_episodes["B"].get_observations(-1).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="Dict space of agents"):
        FlattenObservations(spaces.Discrete(2), multi_agent=True)


def test_spaces_without_fixed_size_cannot_be_flattened():
    with pytest.raises(ValueError, match="cannot be flattened"):
        FlattenObservations(spaces.Text(5))


# ------------------------------------------------------------ frame stacking


def test_frames_are_stacked_behind_zeros():
    space = spaces.Box(0, 255, (2, 2, 1), np.uint8)
    piece = FrameStackingEnvToModule(space, num_frames=3)
    assert piece.observation_space == spaces.Box(0, 255, (2, 2, 3), np.uint8)
    (episode,) = started(np.full((2, 2, 1), 7, np.uint8))
    episode.add_env_step(np.full((2, 2, 1), 8, np.uint8), 0, 0.0)
    (stack,) = run(piece, [episode])["obs"][("e0",)]
    assert stack[0, 0].tolist() == [0, 7, 8]
    with pytest.raises(ValueError, match="last dimension is 1"):
        FrameStackingEnvToModule(spaces.Box(0, 1, (2,)), num_frames=3)


def test_columns_of_frames_are_stacked_per_environment():
    piece = FrameStackingEnvToModule(spaces.Box(0, 255, (1,), np.float32), num_frames=2)

    def push(values, envs, is_first):
        obs = np.array(values, np.float32)[:, None]
        return piece.on_vector_step(VectorStep(obs, np.array(envs), np.array(is_first))).tolist()

    assert push([1, 2], [0, 1], [True, True]) == [[0, 1], [0, 2]]
    assert push([3], [1], [False]) == [[2, 3]]
    assert push([4, 5], [0, 1], [False, True]) == [[1, 4], [0, 5]]
    assert push([6], [2], [True]) == [[0, 6]]


# ------------------------------------------------------------ mean and deviation


def test_statistics_of_parts_are_those_of_all():
    values = np.random.default_rng(3).normal(5, 3, (50, 2))
    whole, parts = RunningStats((2,)), RunningStats((2,))
    whole.add(*_moments(values))
    for part in np.split(values, [1, 7, 7, 30]):
        parts.add(*_moments(part))
    assert whole.mean == pytest.approx(values.mean(axis=0))
    assert parts.mean == pytest.approx(values.mean(axis=0))
    assert parts.std == pytest.approx(values.std(axis=0, ddof=1))


def test_observations_are_standardized_and_clipped():
    space = spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (1,), np.float32), "n": spaces.Discrete(5)})
    piece = MeanStdFilter(input_observation_space=space, clip_by_value=1.0)
    assert piece.observation_space["x"] == spaces.Box(-1, 1, (1,), np.float32)
    episodes = started(*({"x": np.array([x], np.float32), "n": 4} for x in (1, 2, 3)))
    run(piece, episodes)
    assert [float(episode.get_observations(-1)["x"][0]) for episode in episodes] == [-1, 0, 1]
    assert episodes[0].get_observations(-1)["n"] == 4
    assert episodes[0].get_observations(-1)["x"].dtype == np.float32


def test_filters_of_runners_merge_without_counting_twice():
    space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    main, *runners = (MeanStdFilter(input_observation_space=space) for _ in range(3))
    values = np.random.default_rng(0).normal(3, 2, (2, 2, 10, 1)).astype(np.float32)
    for at_once in values:
        for piece, part in zip(runners, at_once, strict=True):
            piece.on_vector_step(step_of(part))
        merged = main.merge_states([pickle.loads(pickle.dumps(piece.get_state())) for piece in runners])
        for piece in runners:
            piece.set_state(merged)
    (stats,) = runners[0].get_state()[None]["running_stats"]
    assert stats["count"] == 40
    assert stats["mean"] == pytest.approx(values.mean(), rel=1e-6)
    assert math.sqrt(stats["squares"][0] / 39) == pytest.approx(values.std(ddof=1), rel=1e-6)
    other = MeanStdFilter(input_observation_space=space, clip_by_value=None)
    with pytest.raises(ValueError, match="different spaces or settings"):
        other.merge_states([merged])


def test_a_filter_for_inference_does_not_change():
    space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    trained = MeanStdFilter(input_observation_space=space)
    trained.on_vector_step(step_of(np.array([[1.0], [3.0]], np.float32)))
    piece = MeanStdFilter(input_observation_space=space, update_stats=False)
    piece.set_state(trained.get_state())
    assert piece.on_vector_step(step_of(np.array([[2.0]], np.float32))).tolist() == [[0]]
    assert piece.get_state()[None]["running_stats"] == trained.get_state()[None]["running_stats"]
    trained.reset_state()
    assert trained.get_state()[None]["running_stats"][0]["count"] == 0


def test_agents_have_statistics_of_their_own():
    space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (1,), np.float32) for name in "AB"})
    piece = MeanStdFilter(input_observation_space=space, multi_agent=True)
    run(piece, [multi_agent(A=np.ones(1), B=np.ones(1)), multi_agent(A=np.ones(1))])
    assert {agent: state["running_stats"][0]["count"] for agent, state in piece.get_state().items()} == {
        "A": 2,
        "B": 1,
    }
    with pytest.raises(ValueError, match="multi_agent=True"):
        run(MeanStdFilter(input_observation_space=space["A"]), [multi_agent(A=np.ones(1))])


# ------------------------------------------------------------ previous actions and rewards


def test_previous_actions_and_rewards_are_added():
    piece = PrevActionsPrevRewards(
        spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(3), n_prev_actions=2, n_prev_rewards=2
    )
    (episode,) = started(np.array([1.0], np.float32))
    run(piece, [episode])
    observation = episode.get_observations(-1)
    assert observation["_orig_obs"].tolist() == [1]
    assert observation["prev_n_actions"].tolist() == [0] * 6
    assert observation["prev_n_rewards"].tolist() == [0, 0]
    episode.add_env_step(np.array([2.0], np.float32), 2, 0.5)
    run(piece, [episode])
    observation = episode.get_observations(-1)
    assert observation in piece.observation_space
    assert observation["prev_n_actions"].tolist() == [0, 0, 0, 0, 0, 1]
    assert observation["prev_n_rewards"].tolist() == [0, 0.5]


def test_previous_actions_of_columns_end_with_their_episode():
    piece = PrevActionsPrevRewards(spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(2), n_prev_rewards=0)
    obs = np.zeros((2, 1), np.float32)
    first = piece.on_vector_step(VectorStep(obs, np.arange(2), np.ones(2, bool)))
    assert first["prev_n_actions"].tolist() == [[0, 0], [0, 0]]
    later = piece.on_vector_step(VectorStep(obs, np.arange(2), np.array([True, False]), np.array([1, 1])))
    assert later["prev_n_actions"].tolist() == [[0, 0], [0, 1]]
    assert set(later) == {"_orig_obs", "prev_n_actions"}


# ------------------------------------------------------------ users' pieces


class Halve(SingleAgentObservationPreprocessor):
    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return spaces.Box(0, 5, (1,), np.float32)

    def preprocess(self, observation, episode):
        return observation / 2 + len(episode)


class Swap(MultiAgentObservationPreprocessor):
    def preprocess(self, observations, episode):
        return {"A": observations["B"], "B": observations["A"]}


def test_single_observations_are_preprocessed():
    episodes = started(np.array([4.0]), np.array([6.0]))
    piece = Halve(spaces.Box(0, 9, (1,), np.float32))
    run(piece, episodes)
    assert [episode.get_observations(-1).tolist() for episode in episodes] == [[2], [3]]
    assert episodes[0].observation_space == spaces.Box(0, 5, (1,), np.float32)


def test_observations_of_agents_are_preprocessed_together():
    episode = multi_agent(A=1, B=2)
    run(Swap(), [episode])
    assert episode.get_observations(-1) == {"A": 2, "B": 1}


def test_observations_in_the_batch_can_be_made_permanent():
    episodes = started(1, 2)
    batch = {"obs": {("e0",): [10], ("e1",): [20]}}
    assert run(WriteObservationsToEpisodes(), episodes, batch=batch) is batch
    assert [episode.get_observations(-1) for episode in episodes] == [10, 20]
    with pytest.raises(ValueError, match="needs observations"):
        run(WriteObservationsToEpisodes(), episodes)


def test_agents_keep_spaces_of_their_own():
    box = spaces.Box(-9.0, 9.0, (2,), np.float32)
    of_agents = spaces.Dict({"A": box, "B": box})
    episode = multi_agent(A=np.zeros(2, np.float32), B=np.ones(2, np.float32))
    for piece in (
        MeanStdFilter(multi_agent=True, input_observation_space=of_agents),
        FlattenObservations(of_agents, multi_agent=True),
    ):
        run(piece, [episode])
        assert episode.agent_episodes["A"].observation_space == piece.observation_space["A"]


def test_rows_of_agents_are_known_though_a_column_before_has_only_some():
    episode = multi_agent(A=np.zeros(2), B=np.ones(2))
    shared = {}
    parts = {agent: ("m", agent, f"{agent}_module") for agent in "AB"}
    batch = {"extra": {parts["A"]: [1]}, "obs": {parts["A"]: [2], parts["B"]: [3]}}
    mapping = AgentToModuleMapping(rl_module_specs=["A_module", "B_module"], agent_to_module_mapping_fn=None)
    run(mapping, [episode], batch=batch, shared_data=shared)
    assert shared["memorized_map_structure"] == {"A_module": [("m", "A")], "B_module": [("m", "B")]}
