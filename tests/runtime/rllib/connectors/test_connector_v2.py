"""The interface of pieces: items of batches, episodes, spaces, state; and pipelines of pieces."""

import numpy as np
import pytest
from gymnasium import spaces

from runtime.rllib.connectors.connector_pipeline_v2 import ConnectorPipelineV2
from runtime.rllib.connectors.connector_v2 import ConnectorV2
from runtime.rllib.connectors.env_to_module import (
    AddObservationsFromEpisodesToBatch,
    BatchIndividualItems,
    EnvToModulePipeline,
    FlattenObservations,
    MeanStdFilter,
    SingleAgentObservationPreprocessor,
)
from runtime.rllib.connectors.learner import (
    AddNextObservationsFromEpisodesToTrainBatch,
    LearnerConnectorPipeline,
)
from runtime.rllib.connectors.module_to_env import GetActions, ModuleToEnvPipeline, NormalizeAndClipActions
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode
from runtime.rllib.utils.metrics import CONNECTOR_PIPELINE_TIMER
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Append(ConnectorV2):
    """Adds its letter to a word."""

    def __init__(self, letter="a", **kwargs):
        self.letter = letter
        self.seen = 0
        super().__init__(**kwargs)

    def __call__(self, *, batch, **kwargs):
        self.seen += 1
        return {**batch, "word": batch.get("word", "") + self.letter}

    def get_state(self, components=None, *, not_components=None, **kwargs):
        return {"seen": self.seen}

    def set_state(self, state):
        self.seen = state["seen"]

    def reset_state(self):
        self.seen = 0

    def merge_states(self, states):
        return {"seen": self.seen + sum(state["seen"] for state in states)}


class Other(Append):
    pass


class Double(ConnectorV2):
    """Twice as many observations per vector."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return spaces.Box(-1.0, 1.0, (2 * input_observation_space.shape[0],), np.float32)

    def __call__(self, *, batch, **kwargs):
        return batch


def word(pipeline):
    return pipeline(rl_module=None, batch={}, episodes=[])["word"]


def episode(id_, length=2, **kwargs):
    return SingleAgentEpisode(
        id_,
        observations=list(range(length + 1)),
        actions=[0] * length,
        rewards=[1.0] * length,
        len_lookback_buffer=0,
        **kwargs,
    )


# ------------------------------------------------------------ items


def test_items_without_an_episode_are_in_a_list():
    batch = {}
    ConnectorV2.add_batch_item(batch, "a", 5)
    ConnectorV2.add_batch_item(batch, "a", 6)
    assert batch == {"a": [5, 6]}


def test_items_of_episodes_are_under_their_ids():
    batch = {}
    ConnectorV2.add_batch_item(batch, "a", 5, episode("x"))
    ConnectorV2.add_n_batch_items(batch, "a", [6, 7], 2, episode("x"))
    ConnectorV2.add_batch_item(
        batch, "a", 8, episode("y", agent_id="A", module_id="M", multi_agent_episode_id="m")
    )
    assert batch == {"a": {("x",): [5, 6, 7], ("m", "A", "M"): [8]}}
    with pytest.raises(ValueError, match="3"):
        ConnectorV2.add_n_batch_items(batch, "a", [6, 7], 3)
    with pytest.raises(ValueError, match="before AgentToModuleMapping"):
        ConnectorV2.add_batch_item({"M": {}}, "a", 8, episode("y", agent_id="A", module_id="M"))


def test_arrays_of_items_stay_arrays_until_they_are_batched():
    batch = {}
    ConnectorV2.add_n_batch_items(batch, "a", {"k": np.arange(6).reshape(3, 2)}, 3, episode("x"))
    ConnectorV2.add_batch_item(batch, "a", {"k": np.array([9, 9])}, episode("y"))
    assert [len(items) for items in batch["a"].values()] == [1, 1]
    batched = BatchIndividualItems()(rl_module=None, batch=batch, episodes=[])
    assert batched["a"]["k"].tolist() == [[0, 1], [2, 3], [4, 5], [9, 9]]
    assert type(batched["a"]["k"]) is np.ndarray


def test_every_item_can_be_changed():
    batch = {
        "a": [1, 2],
        "b": {("x",): [1], ("m", "A", "M"): [2]},
        "c": {("x",): [10], ("m", "A", "M"): [20]},
    }
    seen = []
    ConnectorV2.foreach_batch_item_change_in_place(batch, "a", lambda item, *ids: item + 1)
    ConnectorV2.foreach_batch_item_change_in_place(
        batch, ["b", "c"], lambda items, *ids: seen.append(ids) or (items[1], items[0])
    )
    assert batch == {
        "a": [2, 3],
        "b": {("x",): [10], ("m", "A", "M"): [20]},
        "c": {("x",): [1], ("m", "A", "M"): [2]},
    }
    assert seen == [("x", None, None), ("m", "A", "M")]
    with pytest.raises(ValueError, match="'zzz'"):
        ConnectorV2.foreach_batch_item_change_in_place(batch, "zzz", lambda item, *ids: item)


def test_columns_and_modules_can_be_switched():
    batch = {"obs": {"m0": [1], "m1": [2]}, "actions": {"m1": [3]}}
    expected = {"m0": {"obs": [1]}, "m1": {"obs": [2], "actions": [3]}}
    assert ConnectorV2.switch_batch_from_column_to_module_ids(batch) == expected


def test_episodes_go_with_items_of_a_column():
    episodes = [episode("x"), episode("y")]
    iterate = ConnectorV2.single_agent_episode_iterator
    assert list(iterate(episodes)) == episodes
    assert list(iterate(episodes, zip_with_batch_column=[1, 2])) == [(episodes[0], 1), (episodes[1], 2)]
    column = {("y",): [2], ("x",): [1]}
    assert list(iterate(episodes, zip_with_batch_column=column)) == [(episodes[0], 1), (episodes[1], 2)]
    with pytest.raises(ValueError, match="2 episodes"):
        list(iterate(episodes, zip_with_batch_column=[1]))
    with pytest.raises(ValueError, match="too few"):
        list(iterate(episodes, zip_with_batch_column={("y",): [2], ("x",): []}))


# ------------------------------------------------------------ pipelines


def test_pieces_are_called_in_order_and_can_be_moved():
    pipeline = ConnectorPipelineV2(connectors=[Append("b"), (Append, ("c",), {})])
    pipeline.prepend(Append("a"))
    pipeline.append(Other("d"))
    found = pipeline.insert_before(Other, Append("x"))
    assert found is pipeline[-1]
    pipeline.insert_after("Other", Append("e"))
    assert word(pipeline) == "abcxde"
    pipeline.remove("Append")
    assert word(pipeline) == "bcxde"
    assert len(pipeline) == 5
    assert pipeline["Other"] == pipeline[Other] == [pipeline[3]]
    assert len(pipeline[Append]) == 5
    with pytest.raises(ValueError, match="Append"):
        pipeline.insert_after("Missing", Append())


def test_only_pieces_that_return_a_batch(caplog):
    class Nothing(Append):
        def __call__(self, **kwargs):
            return None

    with pytest.raises(ValueError, match="must return the batch"):
        word(ConnectorPipelineV2(connectors=[Nothing()]))
    with pytest.raises(ValueError, match="ConnectorV2"):
        ConnectorPipelineV2(connectors=["piece"])
    pipeline = ConnectorPipelineV2(connectors=[])
    pipeline.remove("Missing")
    assert "Missing" in caplog.text


def test_spaces_pass_through_a_pipeline_that_changes():
    pipeline = EnvToModulePipeline(BOX, spaces.Discrete(2), connectors=[Double()])
    assert pipeline.observation_space.shape == (4,)
    pipeline.append(Double())
    assert pipeline.observation_space.shape == (8,)
    pipeline.remove(Double)
    assert pipeline.observation_space.shape == (4,)
    pipeline.append(EnvToModulePipeline(connectors=[Double()]))
    assert pipeline.observation_space.shape == (8,)
    assert pipeline.action_space == spaces.Discrete(2)
    assert pipeline[0].input_observation_space == BOX


def test_state_of_pieces_is_kept_by_place_and_class(tmp_path):
    pipeline = ConnectorPipelineV2(connectors=[Append("a"), Double(), Other("b")])
    pipeline[0].seen, pipeline[2].seen = 3, 4
    state = pipeline.get_state()
    assert state == {"000_Append": {"seen": 3}, "002_Other": {"seen": 4}}
    assert pipeline.get_state(not_components="000_Append") == {"002_Other": {"seen": 4}}
    assert pipeline.get_state("000_Append") == {"000_Append": {"seen": 3}}
    assert pipeline.merge_states([state, state]) == {"000_Append": {"seen": 9}, "002_Other": {"seen": 12}}
    pipeline.reset_state()
    assert pipeline.get_state() == {"000_Append": {"seen": 0}, "002_Other": {"seen": 0}}
    pipeline.set_state(state)
    assert pipeline.get_state() == state
    pipeline.save_to_path(tmp_path / "checkpoint")
    restored = ConnectorPipelineV2(connectors=[Append("a"), Double(), Other("b")])
    restored.restore_from_path(tmp_path / "checkpoint")
    assert restored.get_state() == state
    piece = Append.from_checkpoint(tmp_path / "checkpoint" / "002_Other")
    assert (type(piece), piece.letter, piece.seen) == (Other, "b", 4)


def test_times_of_pieces_are_logged():
    metrics = MetricsLogger()
    pipeline = EnvToModulePipeline(connectors=[Append(), Double()])
    pipeline(rl_module=None, episodes=[episode("x", 3)], metrics=metrics, metrics_prefix_key=("p",))
    times = metrics.peek(("p", "timers", "connectors"))
    assert set(times) == {"append", "double"}
    assert all(seconds > 0 for seconds in times.values())
    assert metrics.peek("env_to_module_sum_episodes_length_in") == 3


# ------------------------------------------------------------ columns


def test_pipelines_know_the_pieces_that_work_on_columns():
    flatten, mean_std = FlattenObservations(), MeanStdFilter()
    inner = EnvToModulePipeline(connectors=[mean_std])
    pipeline = EnvToModulePipeline(
        spaces.Dict({"a": BOX}),
        connectors=[flatten, inner, AddObservationsFromEpisodesToBatch(), BatchIndividualItems()],
    )
    assert pipeline.vectorized() == [flatten, mean_std]
    pipeline.append(Append())
    assert pipeline.vectorized() is None

    actions = NormalizeAndClipActions(normalize_actions=True, clip_actions=False)
    assert ModuleToEnvPipeline(connectors=[GetActions(), actions]).vectorized() == [actions]
    after = AddNextObservationsFromEpisodesToTrainBatch()
    assert LearnerConnectorPipeline(connectors=[after]).vectorized() == [after]
    assert LearnerConnectorPipeline(connectors=[mean_std]).vectorized() is None


def test_a_subclass_with_its_own_call_does_not_work_on_columns():
    class Special(FlattenObservations):
        def __call__(self, *, batch, **kwargs):
            return batch

    class Default(AddObservationsFromEpisodesToBatch):
        def __call__(self, *, batch, **kwargs):
            return batch

    class Settings(FlattenObservations):
        pass

    class Both(Special):
        def on_vector_step(self, step):
            return step.observations

    class Preprocessor(SingleAgentObservationPreprocessor):
        def preprocess(self, observation, episode):
            return observation

    def works(piece):
        return EnvToModulePipeline(connectors=[piece]).vectorized() is not None

    assert [works(cls()) for cls in (Special, Default, Settings, Both, Preprocessor)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    with pytest.raises(NotImplementedError, match="Append has no on_vector_step"):
        Append().on_vector_step(None)


def test_a_pipeline_in_a_pipeline_is_timed():
    metrics = MetricsLogger()
    inner = ConnectorPipelineV2(connectors=[Append("b")])
    pipeline = ConnectorPipelineV2(connectors=[Append("a"), inner])
    pipeline(rl_module=None, batch={}, episodes=[], metrics=metrics, metrics_prefix_key=("x",))
    assert metrics.peek(("x", CONNECTOR_PIPELINE_TIMER)) > 0
