"""What a multi-agent episode knows: agents that come later, leave early, and take turns."""

from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

episode = MultiAgentEpisode(agent_to_module_mapping_fn=lambda agent_id, *args, **kwargs: f"m_{agent_id[0]}")
episode.add_env_reset(observations={"a1": 0, "b1": 10}, infos={"a1": {"lives": 3}})
print(episode.agent_ids == {"a1", "b1"}, len(episode), episode.env_t)
episode.add_env_step(
    observations={"a1": 1, "b1": 11},
    actions={"a1": 0, "b1": 1},
    rewards={"a1": 0.5, "b1": 1.0},
    infos={},
    terminateds={"__all__": False},
    truncateds={"__all__": False},
)
episode.add_env_step(  # b1 does not act next; a2 comes
    observations={"a1": 2, "a2": 20},
    actions={"a1": 1, "b1": 0},
    rewards={"a1": 0.5, "b1": 2.0},
    infos={},
    terminateds={"__all__": False},
    truncateds={"__all__": False},
)
episode.add_env_step(  # a1 ends
    observations={"a1": 3, "a2": 21, "b1": 13},
    actions={"a1": 1, "a2": 1},
    rewards={"a1": -1.0, "a2": 4.0},
    infos={},
    terminateds={"a1": True, "__all__": False},
    truncateds={"__all__": False},
)
print(len(episode), episode.env_t, episode.is_done)
print(
    sorted(episode.agent_ids), sorted(episode.get_agents_to_act()), sorted(episode.get_agents_that_stepped())
)
print(episode.get_observations(-1) == {"a1": 3, "a2": 21, "b1": 13})
print(episode.get_rewards(-1))
print({agent: [int(each) for each in values] for agent, values in sorted(episode.get_observations().items())})
print({agent: [float(each) for each in values] for agent, values in sorted(episode.get_rewards().items())})
print({agent: [int(each) for each in values] for agent, values in sorted(episode.get_actions().items())})
print(
    float(episode.get_return()), {a: float(e.get_return()) for a, e in sorted(episode.agent_episodes.items())}
)
print({agent: len(each) for agent, each in sorted(episode.agent_episodes.items())})
print([episode.module_for(agent) for agent in ("a1", "a2", "b1")])
print(episode.agent_episodes["a1"].is_terminated, episode.agent_episodes["b1"].is_done)

part = episode[0:2]
print(len(part), {agent: len(each) for agent, each in sorted(part.agent_episodes.items())})
following = episode.cut()
print(following.id_ == episode.id_, len(following), following.env_t_started, sorted(following.agent_ids))
following.add_env_step(
    observations={"a2": 22, "b1": 14},
    actions={"a2": 0, "b1": 1},
    rewards={"a2": 1.0, "b1": 1.0},
    infos={},
    terminateds={"__all__": True},
    truncateds={"__all__": False},
)
print(following.is_terminated, following.is_done, len(following), float(following.get_return()))

again = MultiAgentEpisode.from_state(episode.get_state())
print(again.id_ == episode.id_, len(again), float(again.get_return()), sorted(again.agent_ids))
