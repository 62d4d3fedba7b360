"""Pieces before a learner's update."""

import numpy as np
import pytest
from gymnasium import spaces

from runtime.rllib.connectors.batching import split_and_zero_pad, unpad
from runtime.rllib.connectors.common import FlattenObservations
from runtime.rllib.connectors.learner import (
    AddColumnsFromEpisodesToTrainBatch,
    AddInfosFromEpisodesToTrainBatch,
    AddNextObservationsFromEpisodesToTrainBatch,
    AddObservationsFromEpisodesToBatch,
    AddOneTsToEpisodesAndTruncate,
    AddStatesFromEpisodesToBatch,
    AddTimeDimToBatchAndZeroPad,
    BatchIndividualItems,
    ComputeReturnsToGo,
    FrameStackingLearner,
    LearnerConnectorPipeline,
)
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode, to_rollout
from runtime.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger

torch = pytest.importorskip("torch")


class Stateful:
    """A recurrent module with a state of one number."""

    model_config = {"max_seq_len": 2}

    def is_stateful(self):
        return True

    def get_initial_state(self):
        return {"h": np.zeros(1, np.float32)}


def episode(id_="x", length=3, *, numpy=True, first=0, **kwargs):
    settings = {"rewards": [1.0] * length, "len_lookback_buffer": 0, **kwargs}
    made = SingleAgentEpisode(
        id_,
        observations=[np.array([first + t], np.float32) for t in range(length + 1)],
        actions=[t % 2 for t in range(length)],
        infos=[{"t": t} for t in range(length + 1)],
        extra_model_outputs={"action_logp": [-0.5 * t for t in range(length)]},
        **settings,
    )
    return made.to_numpy() if numpy else made


def run(piece, episodes, *, batch=None, rl_module=None, shared_data=None):
    shared_data = {} if shared_data is None else shared_data
    return piece(
        rl_module=rl_module, batch={} if batch is None else batch, episodes=episodes, shared_data=shared_data
    )


def batched(pieces, episodes, **kwargs):
    batch = {}
    for piece in [*pieces, BatchIndividualItems()]:
        batch = run(piece, episodes, batch=batch, **kwargs)
    return batch


@pytest.mark.parametrize("numpy", [True, False])
def test_all_columns_of_episodes_are_added(numpy):
    episodes = [episode("x", 3, numpy=numpy, terminated=True), episode("y", 1, numpy=numpy, first=7)]
    pieces = [
        AddObservationsFromEpisodesToBatch(as_learner_connector=True),
        AddNextObservationsFromEpisodesToTrainBatch(),
        AddInfosFromEpisodesToTrainBatch(),
        AddColumnsFromEpisodesToTrainBatch(),
    ]
    batch = batched(pieces, episodes)
    assert batch["obs"].tolist() == [[0], [1], [2], [7]]
    assert batch["new_obs"].tolist() == [[1], [2], [3], [8]]
    assert batch["actions"].tolist() == [0, 1, 0, 0]
    assert batch["rewards"].tolist() == [1, 1, 1, 1]
    assert batch["terminateds"].tolist() == [False, False, True, False]
    assert batch["truncateds"].tolist() == [False] * 4
    assert batch["action_logp"].tolist() == [0, -0.5, -1, 0]
    assert [info["t"] for info in batch["infos"]] == [0, 1, 2, 0]


def test_chunks_of_one_episode_are_kept_apart():
    episodes = [episode("x", 1), episode("x", 2)]
    batch = run(AddObservationsFromEpisodesToBatch(as_learner_connector=True), episodes)
    assert list(batch["obs"]) == [("x_0",), ("x_1",)]


def test_columns_that_are_there_stay():
    batch = {"rewards": "mine", "action_logp": "mine"}
    run(AddColumnsFromEpisodesToTrainBatch(), [episode()], batch=batch)
    assert batch["rewards"] == batch["action_logp"] == "mine"


@pytest.mark.parametrize("numpy", [True, False])
def test_episodes_get_an_extra_step(numpy):
    ended, cut = episode("x", 2, numpy=numpy, terminated=True), episode("y", 1, numpy=numpy)
    shared = {}
    batch = batched(
        [AddOneTsToEpisodesAndTruncate(), AddColumnsFromEpisodesToTrainBatch()],
        [ended, cut],
        shared_data=shared,
    )
    assert (len(ended), len(cut)) == (3, 2)
    assert (ended.is_truncated, cut.is_truncated) == (False, True)
    assert ended.get_observations(-1).tolist() == ended.get_observations(-2).tolist() == [2]
    assert batch["loss_mask"].tolist() == [True, True, False, True, False]
    assert batch["terminateds"].tolist() == [False, True, False, False, False]
    assert batch["truncateds"].tolist() == [False, False, False, True, False]
    assert batch["rewards"].tolist() == [1, 1, 0, 1, 0]
    assert shared["_added_loss_mask_for_valid_episode_ts"]


def test_sequences_are_cut_and_padded():
    states = [{"h": np.array([float(t + 1)], np.float32)} for t in range(3)]
    made = SingleAgentEpisode(
        "x",
        observations=[np.array([t], np.float32) for t in range(4)],
        actions=[0, 1, 2],
        rewards=[1.0, 2.0, 3.0],
        extra_model_outputs={"state_out": states},
        len_lookback_buffer=0,
    ).to_numpy()
    pieces = [
        AddObservationsFromEpisodesToBatch(as_learner_connector=True),
        AddColumnsFromEpisodesToTrainBatch(),
        AddTimeDimToBatchAndZeroPad(as_learner_connector=True),
        AddStatesFromEpisodesToBatch(as_learner_connector=True),
    ]
    batch = batched(pieces, [made], rl_module=Stateful())
    assert batch["obs"][..., 0].tolist() == [[0, 1], [2, 0]]
    assert batch["actions"].tolist() == [[0, 1], [2, 0]]
    assert batch["loss_mask"].tolist() == [[True, True], [True, False]]
    assert batch["seq_lens"].tolist() == [2, 1]
    assert batch["state_in"]["h"].tolist() == [[0], [2]]


def test_states_of_a_continued_episode_are_from_its_lookback():
    states = [{"h": np.array([float(t)], np.float32)} for t in range(1, 5)]
    made = SingleAgentEpisode(
        "x",
        observations=[0.0] * 5,
        actions=[0] * 4,
        rewards=[0.0] * 4,
        extra_model_outputs={"state_out": states},
        t_started=1,
        len_lookback_buffer=1,
    ).to_numpy()
    batch = batched([AddStatesFromEpisodesToBatch(as_learner_connector=True)], [made], rl_module=Stateful())
    assert batch["state_in"]["h"].tolist() == [[1], [3]]


def test_a_stateful_module_needs_a_sequence_length():
    class Without(Stateful):
        model_config = {}

    with pytest.raises(ValueError, match="max_seq_len"):
        run(AddTimeDimToBatchAndZeroPad(as_learner_connector=True), [episode()], rl_module=Without())


def test_padding_can_be_taken_away():
    first, second = np.arange(5), np.arange(10, 13)
    chunks = np.stack([*split_and_zero_pad(list(first), 4), *split_and_zero_pad(list(second), 4)])
    assert chunks.tolist() == [[0, 1, 2, 3], [4, 0, 0, 0], [10, 11, 12, 0]]
    assert unpad([5, 3], chunks).tolist() == [0, 1, 2, 3, 4, 10, 11, 12]
    assert unpad([2], np.array([1, 2])).tolist() == [1, 2]


def test_returns_are_discounted_to_the_end():
    made = episode("x", 3, rewards=[1.0, 2.0, 4.0])
    assert batched([ComputeReturnsToGo(gamma=0.5)], [made])["returns_to_go"].tolist() == [3, 4, 4]


@pytest.mark.parametrize("numpy", [True, False])
def test_frames_of_a_learner_are_stacked_from_the_lookback(numpy):
    space = spaces.Box(0, 9, (1,), np.float32)
    made = SingleAgentEpisode(
        "x",
        observations=[np.array([t], np.float32) for t in range(5)],
        actions=[0] * 4,
        rewards=[0.0] * 4,
        t_started=1,
        len_lookback_buffer=1,
    )
    made = made.to_numpy() if numpy else made
    piece = FrameStackingLearner(space, num_frames=3)
    batch = batched([piece, AddObservationsFromEpisodesToBatch(as_learner_connector=True)], [made])
    assert batch["obs"].tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 3]]
    with pytest.raises(ValueError, match="FrameStackingEnvToModule"):
        piece.on_rollout(to_rollout([made]))


def test_frames_that_runners_stacked_stay():
    made = SingleAgentEpisode(
        "x",
        observations=[np.array([0.0, t]) for t in range(3)],
        actions=[0, 0],
        rewards=[0.0, 0.0],
        len_lookback_buffer=0,
    )
    piece = FrameStackingLearner(spaces.Box(0, 9, (2,), np.float32), num_frames=2)
    rollout = to_rollout([made])
    assert piece.on_rollout(rollout) is rollout
    assert run(piece, [made])["obs"][("x",)][0].tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("numpy", [True, False])
def test_a_learner_flattens_what_runners_did_not(numpy):
    made = SingleAgentEpisode(
        "x", observations=[2, 0, 1], actions=[0, 0], rewards=[0.0, 0.0], len_lookback_buffer=0
    )
    made = made.to_numpy() if numpy else made
    piece = FlattenObservations(spaces.Discrete(3), as_learner_connector=True)
    assert batched([piece], [made])["obs"].tolist() == [[0, 0, 1], [1, 0, 0]]
    rollout = piece.on_rollout(to_rollout([made]))
    assert rollout.columns["obs"].tolist() == [[0, 0, 1], [1, 0, 0]]
    assert rollout.final_obs.tolist() == [[0, 1, 0]]


def test_next_observations_of_a_rollout():
    rollout = AddNextObservationsFromEpisodesToTrainBatch().on_rollout(to_rollout([episode("x", 2)]))
    assert rollout.columns["new_obs"].tolist() == [[1], [2]]


def test_the_pipeline_logs_what_went_through():
    metrics = MetricsLogger()
    pipeline = LearnerConnectorPipeline(connectors=[AddOneTsToEpisodesAndTruncate()])
    pipeline(rl_module=None, episodes=[episode("x", 2), episode("y", 3)], metrics=metrics)
    logged = metrics.peek("__all_modules__")
    assert logged["learner_connector_sum_episodes_length_in"] == 5
    assert logged["learner_connector_sum_episodes_length_out"] == 7
    assert "connectors" in logged["learner_connector"]["timers"]


def test_chunks_of_one_agents_episode_are_kept_apart():
    chunks = [episode("x", n, agent_id="A", module_id="p", multi_agent_episode_id="m") for n in (2, 1)]
    batch, shared = {}, {}
    for piece in (
        AddOneTsToEpisodesAndTruncate(),
        AddObservationsFromEpisodesToBatch(as_learner_connector=True),
    ):
        run(piece, chunks, batch=batch, shared_data=shared)
    assert list(batch["obs"]) == list(batch["loss_mask"]) == [("m_0", "A", "p"), ("m_1", "A", "p")]


def test_rewards_can_be_changed_without_changing_the_rollout():
    rollout = to_rollout([episode("x", 2)])
    (view,) = SingleAgentEpisode.views_of(rollout)
    view.set_rewards(new_data=5.0, at_indices=0)
    batch = batched([AddColumnsFromEpisodesToTrainBatch()], [view])
    assert batch["rewards"].tolist() == [5, 1]
    assert rollout.columns["rewards"].tolist() == [1, 1]


def test_the_state_before_a_chunk_is_the_initial_one_if_it_is_unknown():
    later = episode("x", 3)
    later.extra_model_outputs["state_out"] = InfiniteLookbackBuffer({"h": np.ones((3, 1), np.float32)})
    later.t_started, later.t = 4, 7
    batch = run(AddStatesFromEpisodesToBatch(as_learner_connector=True), [later], rl_module=Stateful())
    (states,) = batch["state_in"][("x",)]
    assert states["h"].ravel().tolist() == [0, 1]


def test_chunks_of_an_episode_are_told_apart_whatever_its_id():
    chunks = [episode("my_id", 3), episode("y", 1), episode("my_id", 2, first=5)]
    batch = run(AddObservationsFromEpisodesToBatch(as_learner_connector=True), chunks)
    assert len(batch["obs"]) == 3
