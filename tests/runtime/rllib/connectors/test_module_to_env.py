"""Pieces between module and environment."""

import numpy as np
import pytest
from gymnasium import spaces

from runtime.rllib.connectors.module_to_env import (
    GetActions,
    ListifyDataForVectorEnv,
    ModuleToAgentUnmapping,
    NormalizeAndClipActions,
    RemoveSingleTsTimeRankFromBatch,
    TensorToNumpy,
    UnBatchToIndividualItems,
)
from runtime.rllib.env.multi_agent_episode import MultiAgentEpisode
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode

torch = pytest.importorskip("torch")


class Module:
    """Gives distributions over two actions."""

    def __init__(self, stateful=False):
        self.stateful = stateful

    def is_stateful(self):
        return self.stateful

    def get_exploration_action_dist_cls(self):
        from runtime.rllib.core.distribution.torch.torch_distribution import TorchCategorical

        return TorchCategorical

    get_inference_action_dist_cls = get_exploration_action_dist_cls


def run(piece, batch, *, episodes=(), shared_data=None, rl_module=None, **kwargs):
    return piece(
        rl_module=rl_module, batch=batch, episodes=list(episodes), shared_data=shared_data or {}, **kwargs
    )


def single(*ids):
    return [SingleAgentEpisode(id_, observations=[0]) for id_ in ids]


def test_actions_are_sampled_or_the_most_likely():
    logits = torch.tensor([[0.0, 50.0], [50.0, 0.0]])
    for explore in (True, False):
        batch = run(GetActions(), {"action_dist_inputs": logits}, rl_module=Module(), explore=explore)
        assert batch["actions"].tolist() == [1, 0]
        assert batch["action_logp"].tolist() == pytest.approx([0, 0])
    batch = run(
        GetActions(), {"action_dist_inputs": logits, "actions": "mine"}, rl_module=Module(), explore=True
    )
    assert set(batch) == {"action_dist_inputs", "actions"}
    assert batch["actions"] == "mine"


def test_actions_of_agents_are_sampled_by_their_modules():
    batch = {"p": {"action_dist_inputs": torch.tensor([[0.0, 50.0]])}}
    run(GetActions(), batch, rl_module={"p": Module()}, episodes=[MultiAgentEpisode("m")], explore=True)
    assert batch["p"]["actions"].tolist() == [1]


def test_rows_return_to_their_episodes():
    batch = {"actions": torch.tensor([5, 6]), "state_out": {"h": torch.ones(2, 3)}}
    batch = run(TensorToNumpy(), batch)
    assert type(batch["state_out"]["h"]) is np.ndarray
    batch = run(UnBatchToIndividualItems(), batch, shared_data={"memorized_map_structure": ["x", "y"]})
    assert batch["actions"] == {("x",): [5], ("y",): [6]}
    assert batch["state_out"][("y",)][0]["h"].tolist() == [1, 1, 1]
    batch = run(ListifyDataForVectorEnv(), batch, episodes=single("x", "y"))
    assert batch["actions"].tolist() == [5, 6]
    assert isinstance(batch["state_out"], list)


def test_without_memory_of_episodes_columns_become_lists():
    assert run(UnBatchToIndividualItems(), {"a": np.array([1, 2])}) == {"a": [1, 2]}


def test_rows_of_modules_return_to_agents_and_environments():
    shared = {"memorized_map_structure": {"p": [("m1", "A"), ("m2", "A")], "q": [("m1", "B")]}}
    batch = {"p": {"actions": np.array([1, 2])}, "q": {"actions": np.array([3])}}
    batch = run(UnBatchToIndividualItems(), batch, shared_data=shared)
    batch = run(ModuleToAgentUnmapping(), batch)
    assert batch == {"actions": {("m1", "A", "p"): [1], ("m2", "A", "p"): [2], ("m1", "B", "q"): [3]}}
    batch = run(ListifyDataForVectorEnv(), batch, episodes=[MultiAgentEpisode("m1"), MultiAgentEpisode("m2")])
    assert batch == {"actions": [{"A": 1, "B": 3}, {"A": 2}]}
    with pytest.raises(KeyError, match="'z'"):
        run(UnBatchToIndividualItems(), {"z": {}}, shared_data=shared)


def test_the_time_dimension_of_states_stays():
    batch = {"actions": {("x",): [np.array([4])]}, "state_out": {("x",): [np.zeros((1, 3))]}}
    shared = {"_added_single_ts_time_rank": True}
    run(RemoveSingleTsTimeRankFromBatch(), batch, rl_module=Module(stateful=True), shared_data=shared)
    assert batch["actions"][("x",)][0] == 4
    assert batch["state_out"][("x",)][0].shape == (1, 3)
    untouched = {"actions": {("x",): [np.array([4])]}}
    run(RemoveSingleTsTimeRankFromBatch(), untouched, rl_module=Module(stateful=True))
    assert untouched["actions"][("x",)][0].shape == (1,)


BOUNDED = spaces.Box(-2.0, 6.0, (1,), np.float32)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"normalize_actions": True, "clip_actions": False}, [2.0, 6.0]),
        ({"normalize_actions": False, "clip_actions": True}, [0.0, 6.0]),
        ({"normalize_actions": False, "clip_actions": False}, None),
    ],
)
def test_actions_are_brought_into_bounds(settings, expected):
    piece = NormalizeAndClipActions(None, BOUNDED, **settings)
    actions = np.array([[0.0], [9.0]], np.float32)
    batch = run(piece, {"actions": {("x",): [actions[0]], ("y",): [actions[1]]}})
    if expected is None:
        assert set(batch) == {"actions"}
        assert piece.on_vector_actions(actions) is actions
    else:
        assert [float(items[0][0]) for items in batch["actions_for_env"].values()] == expected
        assert piece.on_vector_actions(actions).ravel().tolist() == expected
    assert batch["actions"][("y",)][0].tolist() == [9.0]


def test_only_box_parts_of_actions_change():
    piece = NormalizeAndClipActions(
        None, spaces.Dict({"a": BOUNDED, "b": spaces.Discrete(3)}), normalize_actions=True, clip_actions=False
    )
    actions = piece.on_vector_actions({"a": np.zeros((2, 1)), "b": np.array([1, 2])})
    assert actions["a"].tolist() == [[2], [2]]
    assert actions["b"].tolist() == [1, 2]


def test_agents_have_action_spaces_of_their_own():
    agents = spaces.Dict({"A": BOUNDED, "B": spaces.Discrete(3)})
    piece = NormalizeAndClipActions(None, agents, normalize_actions=True, clip_actions=False)
    batch = run(piece, {"actions": {("m", "A", "p"): [np.zeros(1)], ("m", "B", "q"): [2]}})
    assert batch["actions_for_env"][("m", "A", "p")][0].tolist() == [2]
    assert batch["actions_for_env"][("m", "B", "q")] == [2]
