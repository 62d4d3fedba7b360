"""The episode of an environment with several agents, or a chunk of it.

Each agent has a `SingleAgentEpisode` in its own time. `MultiAgentEpisode` knows at which steps of the environment each
agent had an observation, so items can be read in either time. An action, its reward and its outputs are at the
environment step in which the agent acted.

An agent that acted but has no observation since has a hanging step: its action, its outputs and its rewards so far wait
here until the observation comes, and move on to the next chunk if this one is cut.
"""

from __future__ import annotations

import copy
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._core.rollout import Rollout
from .._core.types import DEFAULT_MODULE_ID, AgentID, ModuleID
from ..utils.error import MultiAgentEnvError
from ._agent_items import AgentItems
from .single_agent_episode import SingleAgentEpisode, to_rollout

ALL = "__all__"
MappingFn = Callable[..., ModuleID]


def to_default_module(agent_id: AgentID, episode: Any = None, **kwargs: Any) -> ModuleID:
    """The module of every agent unless the configuration maps agents otherwise."""
    return DEFAULT_MODULE_ID


class MultiAgentEpisode(AgentItems):
    """Observations, actions, rewards, infos and modules' outputs of all agents.

    Attributes:
        id_: the same for all chunks of an episode.
        agent_episodes: agent id -> its `SingleAgentEpisode`. Agents appear with their first observation.
        env_t_started: the environment step in its episode at which the chunk starts.
        env_t: the environment step in its episode at which the chunk ends, so far.
        is_terminated, is_truncated: how the episode ended for all agents, if it has.
        observation_space, action_space: agent id -> space.
        agent_to_module_mapping_fn: (agent id, episode) -> module id; asked once per agent and episode.
    """

    __slots__ = (
        "_agent_to_module_mapping",
        "_custom_data",
        "_early_rewards",
        "_ended_before",
        "_hanging",
        "_last_step_time",
        "_start_time",
        "_steps",
        "action_space",
        "agent_episodes",
        "agent_to_module_mapping_fn",
        "env_t",
        "env_t_started",
        "id_",
        "is_terminated",
        "is_truncated",
        "observation_space",
    )

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: list[dict[AgentID, Any]] | None = None,
        observation_space: Any = None,
        infos: list[dict[AgentID, Any]] | None = None,
        actions: list[dict[AgentID, Any]] | None = None,
        action_space: Any = None,
        rewards: list[dict[AgentID, float]] | None = None,
        terminateds: Mapping[AgentID, bool] | bool = False,
        truncateds: Mapping[AgentID, bool] | bool = False,
        extra_model_outputs: list[dict[AgentID, dict[str, Any]]] | None = None,
        env_t_started: int | None = None,
        agent_t_started: Mapping[AgentID, int] | None = None,
        len_lookback_buffer: int | str = "auto",
        agent_episode_ids: Mapping[AgentID, str] | None = None,
        agent_module_ids: Mapping[AgentID, ModuleID] | None = None,
        agent_to_module_mapping_fn: MappingFn | None = None,
    ) -> None:
        """
        Args:
            id_: a random one by default.
            observations, infos: one dict per environment step, the reset's first.
            actions, rewards, extra_model_outputs: one dict per environment step; one fewer than observations.
            terminateds, truncateds: of the last step, per agent and "__all__"; or one bool for all.
            env_t_started, agent_t_started: the time steps at which the chunk starts; 0 by default.
            len_lookback_buffer: how many of the given environment steps lie before the chunk; "auto": all.
            agent_episode_ids: ids of the agents' episodes; random ones by default.
            agent_module_ids: the modules of agents that are mapped already.
            agent_to_module_mapping_fn: for other agents; by default they all have the default module.
        """
        self.id_ = uuid.uuid4().hex if id_ is None else id_
        self.agent_to_module_mapping_fn: MappingFn = agent_to_module_mapping_fn or to_default_module
        self._agent_to_module_mapping: dict[AgentID, ModuleID] = dict(agent_module_ids or {})
        self.observation_space: Any = observation_space or {}
        self.action_space: Any = action_space or {}
        self.env_t_started = env_t_started or 0
        self.env_t = self.env_t_started
        self.is_terminated = self.is_truncated = False
        self.agent_episodes: dict[AgentID, SingleAgentEpisode] = {}
        # The environment step of each observation of an agent, those of its lookback included, ascending.
        self._steps: dict[AgentID, list[int]] = {}
        self._hanging: dict[
            AgentID, tuple[Any, float, dict[str, Any]]
        ] = {}  # action, rewards so far, outputs
        self._early_rewards: dict[AgentID, float] = {}  # before an agent's first action
        self._ended_before: set[AgentID] = set()  # agents that ended in an earlier chunk
        self._custom_data: dict[str, Any] = {}
        self._start_time: float | None = None
        self._last_step_time: float | None = None
        if observations:
            self._fill(
                observations,
                infos or [],
                actions or [],
                rewards or [],
                terminateds if isinstance(terminateds, Mapping) else {ALL: terminateds},
                truncateds if isinstance(truncateds, Mapping) else {ALL: truncateds},
                extra_model_outputs or [],
                agent_t_started or {},
                len(rewards or []) if len_lookback_buffer == "auto" else int(len_lookback_buffer),
                agent_episode_ids or {},
            )

    def _fill(
        self,
        observations: list[dict[AgentID, Any]],
        infos: list[dict[AgentID, Any]],
        actions: list[dict[AgentID, Any]],
        rewards: list[dict[AgentID, float]],
        terminateds: Mapping[AgentID, bool],
        truncateds: Mapping[AgentID, bool],
        outputs: list[dict[AgentID, dict[str, Any]]],
        t_started: Mapping[AgentID, int],
        lookback: int,
        ids: Mapping[AgentID, str],
    ) -> None:
        self.env_t = self.env_t_started - lookback
        self.add_env_reset(observations=observations[0], infos=infos[0] if infos else None)
        last = len(observations) - 2
        for step, after in enumerate(observations[1:]):
            self.add_env_step(
                after,
                actions[step] if step < len(actions) else {},
                rewards[step] if step < len(rewards) else {},
                infos[step + 1] if step + 1 < len(infos) else None,
                terminateds=terminateds if step == last else None,
                truncateds=truncateds if step == last else None,
                extra_model_outputs=outputs[step] if step < len(outputs) else None,
            )
        for agent_id, episode in self.agent_episodes.items():
            before = max(bisect_left(self._steps[agent_id], self.env_t_started), 0)
            self.agent_episodes[agent_id] = SingleAgentEpisode(
                ids.get(agent_id, episode.id_),
                observations=episode.get_observations(),
                observation_space=episode.observation_space,
                infos=episode.get_infos(),
                actions=episode.get_actions(),
                action_space=episode.action_space,
                rewards=episode.get_rewards(),
                terminated=episode.is_terminated,
                truncated=episode.is_truncated,
                extra_model_outputs=episode.get_extra_model_outputs(),
                t_started=t_started.get(agent_id, 0),
                len_lookback_buffer=min(before, len(episode)),
                agent_id=agent_id,
                module_id=episode.module_id,
                multi_agent_episode_id=self.id_,
            )

    # ------------------------------------------------------------ growing

    def add_env_reset(
        self, *, observations: Mapping[AgentID, Any], infos: Mapping[AgentID, dict[str, Any]] | None = None
    ) -> None:
        """Adds what `env.reset()` gave.

        Raises:
            MultiAgentEnvError: the episode has been reset already.
        """
        if self.is_reset or self.is_done:
            raise MultiAgentEnvError(f"{self!r} has been reset already: make a new episode")
        for agent_id, obs in observations.items():
            self._enter(agent_id, obs, (infos or {}).get(agent_id))
        self._start_time = time.perf_counter()

    def _enter(self, agent_id: AgentID, obs: Any, infos: dict[str, Any] | None) -> None:
        episode = SingleAgentEpisode(
            observation_space=self.observation_space.get(agent_id),
            action_space=self.action_space.get(agent_id),
            agent_id=agent_id,
            module_id=self.module_for(agent_id),
            multi_agent_episode_id=self.id_,
        )
        episode.add_env_reset(obs, infos)
        self.agent_episodes[agent_id] = episode
        self._steps[agent_id] = [self.env_t]

    def add_env_step(
        self,
        observations: Mapping[AgentID, Any],
        actions: Mapping[AgentID, Any],
        rewards: Mapping[AgentID, float],
        infos: Mapping[AgentID, dict[str, Any]] | None = None,
        *,
        terminateds: Mapping[AgentID, bool] | None = None,
        truncateds: Mapping[AgentID, bool] | None = None,
        extra_model_outputs: Mapping[AgentID, dict[str, Any]] | None = None,
    ) -> None:
        """Adds the agents' actions and what `env.step(actions)` gave.

        An agent's own flags go before "__all__". An agent that ends without an observation gets its last one again.
        Rewards of an agent that has not acted yet are kept apart: no action led to them. Those of an agent that has
        ended belong to its last step.

        Args:
            extra_model_outputs: agent id -> the other outputs that its module gave with the action.

        Raises:
            MultiAgentEnvError: the episode is done, or an agent that has ended got an observation or acted.
        """
        if self.is_done:
            raise MultiAgentEnvError(f"{self!r} is done: no step can be added")
        infos, outputs = infos or {}, extra_model_outputs or {}
        ends, cuts = terminateds or {}, truncateds or {}
        self.env_t += 1
        for agent_id in (*observations, *actions):
            episode = self.agent_episodes.get(agent_id)
            if agent_id in self._ended_before or (episode is not None and episode.is_done):
                raise MultiAgentEnvError(
                    f"Agent {agent_id!r} had terminated or was truncated, but got an observation or acted again in "
                    f"episode {self.id_}. Return no observations of agents that are done, or use a new agent id"
                )
        for agent_id, action in actions.items():
            self._hanging[agent_id] = (action, 0.0, outputs.get(agent_id) or {})
        for agent_id, reward in rewards.items():
            if agent_id in self._hanging:
                action, before, output = self._hanging[agent_id]
                self._hanging[agent_id] = (action, before + float(reward), output)
                continue
            episode = self.agent_episodes.get(agent_id)
            if episode is not None and episode.is_done and len(episode):
                episode.rewards.set(episode.rewards.get(-1) + float(reward), at_indices=-1)
            else:
                self._early_rewards[agent_id] = self._early_rewards.get(agent_id, 0.0) + float(reward)
        everyone_ends, everyone_cut = bool(ends.get(ALL)), bool(cuts.get(ALL))

        def end_of(agent_id: AgentID) -> tuple[bool, bool]:
            truncated = bool(cuts.get(agent_id))
            terminated = bool(ends.get(agent_id)) or (everyone_ends and not truncated)
            return terminated, truncated or (everyone_cut and not terminated)

        for agent_id, obs in observations.items():
            terminated, truncated = end_of(agent_id)
            if agent_id in self.agent_episodes:
                self._complete(agent_id, obs, infos.get(agent_id), terminated, truncated)
            elif not (terminated or truncated):  # else it never acts
                self._enter(agent_id, obs, infos.get(agent_id))
        leaving = [*ends, *cuts] if not (everyone_ends or everyone_cut) else [*self.agent_episodes]
        for agent_id in leaving:
            episode = self.agent_episodes.get(agent_id)
            terminated, truncated = end_of(agent_id)
            if episode is None or episode.is_done or not (terminated or truncated):
                continue
            if agent_id in self._hanging:
                infos_before = episode.get_infos(-1)
                self._complete(agent_id, episode.get_observations(-1), infos_before, terminated, truncated)
            else:
                episode.is_terminated, episode.is_truncated = terminated, truncated
        alive = [e for e in self.agent_episodes.values() if not e.is_done]
        self.is_terminated = everyone_ends or bool(self.agent_episodes and not alive and not everyone_cut)
        self.is_truncated = everyone_cut
        self._last_step_time = time.perf_counter()
        if self._start_time is None:  # the continuation of a cut episode
            self._start_time = self._last_step_time

    def _complete(
        self, agent_id: AgentID, obs: Any, infos: dict[str, Any] | None, terminated: bool, truncated: bool
    ) -> None:
        episode = self.agent_episodes[agent_id]
        if agent_id not in self._hanging:
            raise MultiAgentEnvError(
                f"Agent {agent_id!r} got an observation at environment step {self.env_t} of episode {self.id_}, but it "
                "did not act on the one before"
            )
        action, reward, outputs = self._hanging.pop(agent_id)
        episode.add_env_step(
            obs,
            action,
            reward,
            infos,
            terminated=terminated,
            truncated=truncated,
            extra_model_outputs=outputs,
        )
        self._steps[agent_id].append(self.env_t)

    def validate(self) -> None:
        """Checks that the lengths fit together.

        Raises:
            ValueError: they do not.
        """
        for agent_id, episode in self.agent_episodes.items():
            episode.validate()
            if len(self._steps[agent_id]) != episode.observations.len_incl_lookback():
                raise ValueError(
                    f"Agent {agent_id!r} of episode {self.id_} has observations at unknown steps"
                )

    # ------------------------------------------------------------ facts

    @property
    def custom_data(self) -> dict[str, Any]:
        """For callbacks and connectors to keep what they want."""
        return self._custom_data

    @property
    def is_reset(self) -> bool:
        """Whether an agent has had an observation."""
        return bool(self.agent_episodes)

    @property
    def is_numpy(self) -> bool:
        """Whether the items are arrays."""
        return any(episode.is_numpy for episode in self.agent_episodes.values())

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended for all agents."""
        return self.is_terminated or self.is_truncated

    @property
    def agent_ids(self) -> set[AgentID]:
        """The agents that had an observation."""
        return set(self.agent_episodes)

    @property
    def agent_episode_ids(self) -> dict[AgentID, str]:
        """Agent id -> id of its episode."""
        return {agent_id: episode.id_ for agent_id, episode in self.agent_episodes.items()}

    @property
    def agent_t_started(self) -> dict[AgentID, int]:
        """Agent id -> the agent's time step at which the chunk starts."""
        return {agent_id: episode.t_started for agent_id, episode in self.agent_episodes.items()}

    def module_for(self, agent_id: AgentID) -> ModuleID:
        """The module that acts for the agent during this episode."""
        module_id = self._agent_to_module_mapping.get(agent_id)
        if module_id is None:
            module_id = self._agent_to_module_mapping[agent_id] = self.agent_to_module_mapping_fn(
                agent_id, self
            )
        return module_id

    def __len__(self) -> int:
        """The number of environment steps, without the lookback."""
        return self.env_t - self.env_t_started

    def env_steps(self) -> int:
        """The number of environment steps."""
        return len(self)

    def agent_steps(self) -> int:
        """The number of steps of all agents."""
        return sum(len(episode) for episode in self.agent_episodes.values())

    def get_return(self, include_hanging_rewards: bool = False) -> float:
        """The sum of all agents' rewards.

        Args:
            include_hanging_rewards: count those of steps that are not complete, and those before an agent's first
                action, too.
        """
        total = sum(episode.get_return() for episode in self.agent_episodes.values())
        if include_hanging_rewards:
            total += sum(self._early_rewards.values()) + sum(
                reward for _, reward, _ in self._hanging.values()
            )
        return float(total)

    def agent_returns(self) -> dict[AgentID, float]:
        """The sum of each agent's rewards, with those before its first action and of a hanging step."""
        totals = {agent_id: episode.get_return() for agent_id, episode in self.agent_episodes.items()}
        hanging = {agent_id: reward for agent_id, (_, reward, _) in self._hanging.items()}
        for more in (self._early_rewards, hanging):
            for agent_id, reward in more.items():
                totals[agent_id] = totals.get(agent_id, 0.0) + reward
        return totals

    def get_duration_s(self) -> float:
        """Seconds from the reset to the last step; 0 if there was no step."""
        if self._start_time is None or self._last_step_time is None:
            return 0.0
        return self._last_step_time - self._start_time

    def __repr__(self) -> str:
        returns = {agent_id: episode.get_return() for agent_id, episode in self.agent_episodes.items()}
        return f"MAEps(len={len(self)} done={self.is_done} Rs={returns} id_={self.id_})"

    # ------------------------------------------------------------ parts and joins

    def to_numpy(self) -> MultiAgentEpisode:
        """Makes arrays of the lists, infos excepted; returns the episode itself."""
        for episode in self.agent_episodes.values():
            episode.to_numpy()
        return self

    def concat_episode(self, other: MultiAgentEpisode) -> None:
        """Appends the chunk that continues this one.

        Raises:
            ValueError: it is of another episode, does not start where this one ends, or this one is done.
        """
        if other.id_ != self.id_:
            raise ValueError(f"Episode {other.id_} cannot continue episode {self.id_}")
        if self.is_done or self.env_t != other.env_t_started:
            raise ValueError(
                f"The chunk that starts at environment step {other.env_t_started} cannot continue one that "
                f"{'is done' if self.is_done else 'ends'} at {self.env_t}"
            )
        for agent_id, episode in other.agent_episodes.items():
            mine = self.agent_episodes.get(agent_id)
            if mine is None:
                self.agent_episodes[agent_id] = episode
                self._steps[agent_id] = [*other._steps[agent_id]]
            elif not mine.is_done:
                mine.concat_episode(episode)
                self._steps[agent_id] += other._steps[agent_id][episode.observations.lookback + 1 :]
        self._agent_to_module_mapping = {**other._agent_to_module_mapping, **self._agent_to_module_mapping}
        self._hanging = dict(other._hanging)
        for agent_id, reward in other._early_rewards.items():
            self._early_rewards[agent_id] = self._early_rewards.get(agent_id, 0.0) + reward
        self.env_t = other.env_t
        self.is_terminated, self.is_truncated = other.is_terminated, other.is_truncated
        self._last_step_time = other._last_step_time
        self._custom_data.update(other._custom_data)
        self.validate()

    def cut(self, len_lookback_buffer: int = 0, *, own_steps: int = 0) -> MultiAgentEpisode:
        """An episode without steps that continues this one. Hanging steps move there.

        Args:
            len_lookback_buffer: how many environment steps of this one are its lookback, if there are as many.
            own_steps: how many steps of each agent it has at least, though they lie further back.

        Raises:
            ValueError: the episode is done.
        """
        if self.is_done or len_lookback_buffer < 0:
            raise ValueError(f"{self!r} cannot be cut with a lookback of {len_lookback_buffer} steps")
        result = self._like(self.env_t)
        for agent_id, episode in self.agent_episodes.items():
            if episode.is_done:
                result._ended_before.add(agent_id)
                continue
            steps = self._steps[agent_id]
            back = len(steps) - 1 - bisect_left(steps, self.env_t - len_lookback_buffer, 0, len(steps) - 1)
            back = max(back, min(own_steps, len(steps) - 1))
            result.agent_episodes[agent_id] = episode.cut(back)
            result._steps[agent_id] = steps[len(steps) - 1 - back :]
        result._hanging, self._hanging = self._hanging, {}
        result._custom_data = copy.deepcopy(self._custom_data)
        return result

    def _like(self, env_t_started: int) -> MultiAgentEpisode:
        result = MultiAgentEpisode(
            self.id_,
            observation_space=self.observation_space,
            action_space=self.action_space,
            env_t_started=env_t_started,
            agent_module_ids=self._agent_to_module_mapping,
            agent_to_module_mapping_fn=self.agent_to_module_mapping_fn,
        )
        result._ended_before = set(self._ended_before)
        return result

    def __getitem__(self, item: slice) -> MultiAgentEpisode:
        if not isinstance(item, slice):
            raise TypeError(f"An episode takes slices, as in `episode[3:5]`, not {item!r}")
        return self.slice(item)

    def slice(self, slice_: slice, *, len_lookback_buffer: int | None = None) -> MultiAgentEpisode:
        """The chunk of these environment steps.

        A step of an agent belongs to it if the agent acted and had its next observation within it. If only its action
        lies in it, the step hangs at the end of the result.

        Args:
            slice_: of the steps, without the lookback; without a step.
            len_lookback_buffer: how many environment steps before it to take along, if there are as many; by default
                as many as this episode has.

        Raises:
            ValueError: the slice has a step other than 1.
        """
        start, stop, step = slice_.indices(len(self))
        if step != 1:
            raise ValueError(f"An episode's slice cannot have the step {step}")
        first, last = self.env_t_started + start, self.env_t_started + max(start, stop)
        wanted = (
            self.env_t_started - self._first_time() if len_lookback_buffer is None else len_lookback_buffer
        )
        at_end = last == self.env_t
        result = self._like(first)
        result.env_t = last
        for agent_id, episode in self.agent_episodes.items():
            steps = self._steps[agent_id]
            begin, end = (
                bisect_left(steps, first),
                bisect_left(steps, last + 1) - 1,
            )  # observations begin ... end
            had_ended = episode.is_done and end == len(steps) - 1
            if end < begin and (end < 0 or had_ended):
                continue  # it came later, or had ended
            begin = min(begin, end)
            back = begin - bisect_left(steps, first - wanted, 0, begin + 1)
            lookback = episode.observations.lookback
            part = episode.part(begin - lookback, end - lookback, back)
            if steps[end] < last and end < len(steps) - 1:
                part.is_terminated = part.is_truncated = False
                result._hanging[agent_id] = (
                    episode.get_actions(end - lookback, neg_index_as_lookback=True),
                    float(episode.get_rewards(end - lookback, neg_index_as_lookback=True)),
                    episode.get_extra_model_outputs(None, end - lookback, neg_index_as_lookback=True),
                )
            elif at_end and agent_id in self._hanging:
                result._hanging[agent_id] = self._hanging[agent_id]
            result.agent_episodes[agent_id] = part
            result._steps[agent_id] = steps[begin - back : end + 1]
        if at_end:
            result.is_terminated, result.is_truncated = self.is_terminated, self.is_truncated
        return result

    # ------------------------------------------------------------ state

    def get_state(self) -> dict[str, Any]:
        """What `from_state` makes an equal episode of; it can be pickled if the mapping function can."""
        state = {}
        for name in self.__slots__:
            value = getattr(self, name)
            state[name] = copy.copy(value) if isinstance(value, dict | set) else value
        state["_steps"] = {agent_id: [*steps] for agent_id, steps in self._steps.items()}
        state["agent_episodes"] = [(agent_id, e.get_state()) for agent_id, e in self.agent_episodes.items()]
        return state

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> MultiAgentEpisode:
        """The episode that gave this state."""
        episode = MultiAgentEpisode(state["id_"])
        for name in episode.__slots__:
            if name != "agent_episodes":
                setattr(episode, name, state[name])
        episode.agent_episodes = {
            a: SingleAgentEpisode.from_state(part) for a, part in state["agent_episodes"]
        }
        return episode


def completed(episodes: Sequence[MultiAgentEpisode]) -> dict[ModuleID, list[SingleAgentEpisode]]:
    """Module id -> the episodes of its agents that have steps."""
    result: dict[ModuleID, list[SingleAgentEpisode]] = {}
    for episode in episodes:
        for agent_id, part in episode.agent_episodes.items():
            if len(part):
                result.setdefault(part.module_id or episode.module_for(agent_id), []).append(part)
    return result


def to_rollouts(episodes: Sequence[MultiAgentEpisode]) -> dict[ModuleID, Rollout]:
    """Module id -> the steps of its agents; copies. Modules without steps are left out."""
    return {module_id: to_rollout(parts) for module_id, parts in completed(episodes).items()}
