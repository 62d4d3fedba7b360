"""An episode that grows, is read, cut, joined."""

import gymnasium as gym
import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

episode = SingleAgentEpisode(
    observation_space=gym.spaces.Box(-100.0, 100.0, (2,), np.float32), action_space=gym.spaces.Discrete(3)
)
episode.add_env_reset(observation=np.array([0.0, 0.5], np.float32), infos={"start": True})
for t in range(1, 6):
    episode.add_env_step(
        observation=np.array([t, t + 0.5], np.float32),
        action=t % 3,
        reward=float(t),
        infos={"t": t},
        extra_model_outputs={"action_logp": -0.1 * t},
    )
print(
    len(episode),
    episode.is_done,
    episode.is_reset,
    episode.is_numpy,
    episode.env_steps(),
    episode.agent_steps(),
)
print(episode.t, episode.t_started, episode.get_return())
print([o.tolist() for o in episode.get_observations(slice(-2, None))], episode.get_observations(0).tolist())
print(list(episode.get_actions()), episode.get_actions(-1), list(episode.get_rewards([0, 2, 4])))
print(
    episode.get_infos(-1),
    episode.get_infos(0),
    list(np.round(episode.get_extra_model_outputs("action_logp"), 3)),
)
print([float(r) for r in episode.get_rewards(slice(-7, None), fill=0.0)])
print([np.asarray(a).tolist() for a in episode.get_actions([-2, -1], one_hot_discrete=True)])

rest = episode.cut(len_lookback_buffer=2)
print(len(episode), len(rest), rest.t_started, rest.t, rest.id_ == episode.id_)
print(rest.get_observations(-1).tolist(), list(rest.get_rewards(slice(-2, 0), neg_index_as_lookback=True)))
rest.add_env_step(
    np.array([9.0, 9.5], np.float32), 1, 10.0, terminated=True, extra_model_outputs={"action_logp": -0.9}
)
print(rest.is_terminated, rest.is_truncated, rest.is_done, rest.get_return(), len(rest))

whole = episode.concat_episode(rest)
print(whole, len(episode), episode.get_return(), episode.is_done)
part = episode[2:4]
print(
    len(part),
    part.t_started,
    list(part.get_rewards()),
    part.is_done,
    [o.tolist() for o in part.get_observations()],
)
episode.to_numpy()
print(
    episode.is_numpy,
    type(episode.get_observations()).__name__,
    episode.get_observations().shape,
    episode.get_actions().dtype.kind,
)
print(episode.get_rewards().tolist(), episode.get_actions().tolist())
state = episode.get_state()
again = SingleAgentEpisode.from_state(state)
print(len(again), again.get_return(), again.id_ == episode.id_)
fresh = SingleAgentEpisode(
    observations=[0, 1, 2], actions=[1, 1], rewards=[0.5, 0.25], truncated=True, len_lookback_buffer=0
)
print(
    len(fresh),
    fresh.is_truncated,
    fresh.get_return(),
    fresh.get_observations(),
    fresh.get_data_dict if False else "",
)
print(
    sorted(
        key
        for key in episode.get_data_dict()
        if key in ("obs", "actions", "rewards", "terminateds", "truncateds")
    )
)
