"""Pieces of a connector pipeline are put in, found, removed, and have states."""

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.env_to_module import EnvToModulePipeline
from ray.rllib.env.single_agent_episode import SingleAgentEpisode


class Counting(ConnectorV2):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = 0

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, metrics=None, **kwargs):
        self.calls += 1
        batch.setdefault("order", []).append(type(self).__name__)
        return batch

    def get_state(self, components=None, *, not_components=None, **kwargs):
        return {"calls": self.calls}

    def set_state(self, state):
        self.calls = state["calls"]


class First(Counting):
    pass


class Second(Counting):
    pass


class Third(Counting):
    pass


class Extra(Counting):
    pass


class Scaled(ConnectorV2):
    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return gym.spaces.Box(-2.0, 2.0, input_observation_space.shape)

    def __call__(self, *, rl_module, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes):
            episode.set_observations(new_data=episode.get_observations(-1) * 2.0, at_indices=-1)
        return batch


space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)


def names(pipeline):
    return [type(piece).__name__ for piece in pipeline.connectors]


def run(pipeline, episodes=()):
    return pipeline(rl_module=None, batch={}, episodes=list(episodes), explore=True, shared_data={})


pipeline = EnvToModulePipeline(space, actions, connectors=[First(), Third()])
print(names(pipeline), len(pipeline))
pipeline.insert_after(First, Second())
pipeline.insert_before("First", Extra())
print(names(pipeline))
print(run(pipeline)["order"])
pipeline.remove("Extra")
pipeline.append(Extra())
print(run(pipeline)["order"])
pipeline.remove(Extra)
pipeline.prepend(Extra())
print(names(pipeline), [piece.calls for piece in pipeline.connectors])

try:
    pipeline.remove("Missing")
except ValueError:
    print("no such piece")
state = pipeline.get_state()
print(len(state))
other = EnvToModulePipeline(space, actions, connectors=[Extra(), First(), Second(), Third()])
other.set_state(state)
print([piece.calls for piece in other.connectors])

scaled = EnvToModulePipeline(space, actions, connectors=[Scaled()])
print(scaled.observation_space, scaled.action_space)
episode = SingleAgentEpisode(observation_space=space, action_space=actions)
episode.add_env_reset(observation=np.array([0.5, -0.25, 0.0], np.float32))
run(scaled, [episode])
print(episode.get_observations(-1).tolist())
