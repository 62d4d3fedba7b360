"""The episode of one agent, or a chunk of it."""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.rollout import Rollout
from runtime.rllib.env._episode_rollouts import data_dict, views
from runtime.rllib.env._episode_rollouts import to_rollout as to_rollout
from runtime.rllib.env.utils.infinite_lookback_buffer import Indices, Reading, ReadingOfSpace, Writing
from runtime.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer as Buffer
from runtime.rllib.policy.sample_batch import SampleBatch


class SingleAgentEpisode:
    """Observations, actions, rewards, infos and a module's outputs of an episode, or of a chunk of one.

    With n steps there are n actions, rewards and outputs, and n + 1 observations and infos: action t follows
    observation t, reward t follows action t. Before time step 0 of a chunk there may be a lookback of earlier steps.
    Items are lists while the episode grows; `to_numpy` makes arrays of them.

    Attributes:
        id_: the same for all chunks of an episode.
        t_started: the time step in its episode at which the chunk starts.
        t: the time step in its episode at which the chunk ends, so far.
        is_terminated: whether the episode ended by itself.
        is_truncated: whether a limit ended it.
        observations, infos, actions, rewards: each an `InfiniteLookbackBuffer`.
        extra_model_outputs: a buffer per name of output.
        agent_id, module_id, multi_agent_episode_id: what it belongs to, if that is known.
    """

    __slots__ = (
        "_action_space",
        "_custom_data",
        "_infos",
        "_last_step_time",
        "_observation_space",
        "_start_time",
        "actions",
        "agent_id",
        "extra_model_outputs",
        "id_",
        "is_terminated",
        "is_truncated",
        "module_id",
        "multi_agent_episode_id",
        "observations",
        "rewards",
        "t",
        "t_started",
    )

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: list[Any] | Buffer | None = None,
        observation_space: Any = None,
        infos: list[dict[str, Any]] | Buffer | None = None,
        actions: list[Any] | Buffer | None = None,
        action_space: Any = None,
        rewards: list[float] | Buffer | None = None,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: Mapping[str, Any] | None = None,
        t_started: int | None = None,
        len_lookback_buffer: int | str = "auto",
        agent_id: Any = None,
        module_id: str | None = None,
        multi_agent_episode_id: str | None = None,
    ) -> None:
        """
        Args:
            id_: a random one by default.
            observations, infos, actions, rewards: what there is already, as lists or buffers. One observation more
                than actions.
            extra_model_outputs: lists or buffers, as long as `actions`.
            t_started: 0 by default.
            len_lookback_buffer: how many steps of the given lists lie before the chunk; "auto": all.

        Raises:
            ValueError: the lengths do not fit together.
        """
        self.id_ = uuid.uuid4().hex if id_ is None else id_
        self.agent_id, self.module_id, self.multi_agent_episode_id = (
            agent_id,
            module_id,
            multi_agent_episode_id,
        )
        given = 0 if rewards is None else len(rewards)
        lookback = given if len_lookback_buffer == "auto" else min(int(len_lookback_buffer), given)

        def buffer(items: Any, space: Any = None) -> Buffer:
            return items if isinstance(items, Buffer) else Buffer(items, lookback, space)

        self.observations = buffer(observations)
        self.actions = buffer(actions)
        self.rewards = buffer(rewards)
        self._infos: Buffer | None = (
            None if infos is None or (isinstance(infos, list) and not infos) else buffer(infos)
        )
        self.extra_model_outputs: dict[str, Buffer] = {
            name: buffer(values) for name, values in (extra_model_outputs or {}).items()
        }
        self.observation_space = self.observations.space if observation_space is None else observation_space
        self.action_space = self.actions.space if action_space is None else action_space
        self.is_terminated, self.is_truncated = terminated, truncated
        self.t_started = t_started or 0
        self.t = self.t_started + len(self.rewards)
        self._custom_data: dict[str, Any] = {}
        self._start_time: float | None = None
        self._last_step_time: float | None = None
        self.validate()

    # ------------------------------------------------------------ growing

    def add_env_reset(self, observation: Any, infos: dict[str, Any] | None = None) -> None:
        """Adds what `env.reset()` gave.

        Raises:
            ValueError: the episode has been reset already.
        """
        if self.is_reset or self.is_done or self.t_started:
            raise ValueError(f"{self!r} has been reset already: make a new episode")
        infos_buffer = self.infos
        self.observations.append(observation)
        infos_buffer.append(infos or {})
        self._start_time = time.perf_counter()

    def add_env_step(
        self,
        observation: Any,
        action: Any,
        reward: float,
        infos: dict[str, Any] | None = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds an action and what `env.step(action)` gave.

        Args:
            extra_model_outputs: the other outputs that the module gave with the action.

        Raises:
            ValueError: the episode is done, or has not been reset.
        """
        if self.is_done:
            raise ValueError(f"{self!r} is done: no step can be added")
        if not self.is_reset:
            raise ValueError(f"{self!r} has no observation yet: call `add_env_reset` first")
        infos_buffer = self.infos
        self.observations.append(observation)
        self.actions.append(action)
        self.rewards.append(reward)
        infos_buffer.append(infos or {})
        for name, value in (extra_model_outputs or {}).items():
            buffer = self.extra_model_outputs.get(name)
            if buffer is None:
                buffer = self.extra_model_outputs[name] = Buffer()
            buffer.append(value)
        self.t += 1
        self.is_terminated, self.is_truncated = bool(terminated), bool(truncated)
        self._last_step_time = time.perf_counter()
        if self._start_time is None:  # the continuation of a cut episode
            self._start_time = self._last_step_time

    def validate(self) -> None:
        """Checks that the lengths fit together.

        Raises:
            ValueError: they do not.
        """
        steps = self.t - self.t_started
        rewards = self.rewards.len_incl_lookback()
        if rewards != self.actions.len_incl_lookback():
            raise ValueError(
                f"Episode {self.id_} has {len(self.actions)} actions but {len(self.rewards)} rewards"
            )
        observations = self.observations.len_incl_lookback()
        if observations != rewards + 1 and (observations or rewards):
            raise ValueError(
                f"Episode {self.id_} has {observations} observations and {rewards} rewards: there must be one "
                "observation more than rewards"
            )
        if self._infos is not None and self._infos.len_incl_lookback() not in (0, observations):
            raise ValueError(
                f"Episode {self.id_} has {observations} observations but {len(self._infos)} infos"
            )
        for name, values in self.extra_model_outputs.items():
            if len(values) != steps:
                raise ValueError(f"Episode {self.id_} has {steps} steps but {len(values)} values of {name!r}")

    # ------------------------------------------------------------ facts

    @property
    def infos(self) -> Buffer:
        """One dict per observation."""
        if self._infos is None:  # nobody gave any: most environments never do, so they are made on demand
            self._infos = Buffer(
                [{} for _ in range(self.observations.len_incl_lookback())], self.observations.lookback
            )
        return self._infos

    @infos.setter
    def infos(self, value: Buffer) -> None:
        self._infos = value

    @property
    def has_infos(self) -> bool:
        """Whether somebody gave infos or asked for them."""
        return self._infos is not None

    @property
    def observation_space(self) -> Any:
        """The gymnasium space of an observation, or None."""
        return self._observation_space

    @observation_space.setter
    def observation_space(self, value: Any) -> None:
        self._observation_space = self.observations.space = value

    @property
    def action_space(self) -> Any:
        """The gymnasium space of an action, or None."""
        return self._action_space

    @action_space.setter
    def action_space(self, value: Any) -> None:
        self._action_space = self.actions.space = value

    @property
    def custom_data(self) -> dict[str, Any]:
        """For callbacks and connectors to keep what they want."""
        return self._custom_data

    @property
    def is_reset(self) -> bool:
        """Whether there is an observation."""
        return self.observations.len_incl_lookback() > 0

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self.is_terminated or self.is_truncated

    @property
    def is_numpy(self) -> bool:
        """Whether the items are arrays."""
        return self.observations.finalized

    def __len__(self) -> int:
        """The number of steps, without the lookback."""
        return self.t - self.t_started

    def env_steps(self) -> int:
        """The number of steps, of the environment and of the agent alike."""
        return len(self)

    agent_steps = env_steps

    def get_return(self) -> float:
        """The sum of the rewards of this chunk."""
        return float(np.sum(self.rewards.get()))

    def get_duration_s(self) -> float:
        """Seconds from the reset to the last step; 0 if there was no step, or the times are unknown."""
        if self._start_time is None or self._last_step_time is None:
            return 0.0
        return self._last_step_time - self._start_time

    def __repr__(self) -> str:
        return f"SAEps(len={len(self)} done={self.is_done} R={self.get_return()} id_={self.id_})"

    # ------------------------------------------------------------ reading and writing

    def get_observations(self, indices: Indices = None, **how: Unpack[ReadingOfSpace]) -> Any:
        """Observations; for the arguments of all getters see `InfiniteLookbackBuffer.get`."""
        return self.observations.get(indices, **how)

    def get_infos(self, indices: Indices = None, **how: Unpack[Reading]) -> Any:
        """Info dicts."""
        return self.infos.get(indices, **how)

    def get_actions(self, indices: Indices = None, **how: Unpack[ReadingOfSpace]) -> Any:
        """Actions."""
        return self.actions.get(indices, **how)

    def get_rewards(self, indices: Indices = None, **how: Unpack[Reading]) -> Any:
        """Rewards."""
        return self.rewards.get(indices, **how)

    def get_extra_model_outputs(
        self, key: str | None = None, indices: Indices = None, **how: Unpack[Reading]
    ) -> Any:
        """One of the module's outputs, or a dict of all.

        Raises:
            KeyError: there is no such output.
        """
        if key is None:
            return {name: values.get(indices, **how) for name, values in self.extra_model_outputs.items()}
        return self._output(key).get(indices, **how)

    def set_observations(self, *, new_data: Any, **where: Unpack[Writing]) -> None:
        """Overwrites observations; for the arguments of all setters see `InfiniteLookbackBuffer.set`."""
        self.observations.set(new_data, **where)

    def set_actions(self, *, new_data: Any, **where: Unpack[Writing]) -> None:
        """Overwrites actions."""
        self.actions.set(new_data, **where)

    def set_rewards(self, *, new_data: Any, **where: Unpack[Writing]) -> None:
        """Overwrites rewards."""
        self.rewards.set(new_data, **where)

    def set_extra_model_outputs(self, *, key: str, new_data: Any, **where: Unpack[Writing]) -> None:
        """Overwrites an output, or adds a new one for all steps.

        Raises:
            KeyError: the output is new and `at_indices` is given.
        """
        if key in self.extra_model_outputs or where.get("at_indices") is not None:
            self._output(key).set(new_data, **where)
            return
        given = Buffer(new_data)
        if len(given) != len(self):
            raise ValueError(f"{key!r} has {len(given)} values for {len(self)} steps")
        self.extra_model_outputs[key] = given

    def _output(self, key: str) -> Buffer:
        try:
            return self.extra_model_outputs[key]
        except KeyError:
            known = ", ".join(sorted(self.extra_model_outputs)) or "none"
            raise KeyError(f"Episode {self.id_} has no module output {key!r}; it has: {known}") from None

    # ------------------------------------------------------------ parts and joins

    def to_numpy(self) -> SingleAgentEpisode:
        """Makes arrays of the lists, infos excepted; returns the episode itself."""
        for buffer in (self.observations, self.actions, self.rewards, *self.extra_model_outputs.values()):
            buffer.finalize()
        return self

    def concat_episode(self, other: SingleAgentEpisode) -> None:
        """Appends the chunk that continues this one.

        Raises:
            ValueError: it is of another episode, does not start where this one ends, or this one is done.
        """
        if other.id_ != self.id_:
            raise ValueError(f"Episode {other.id_} cannot continue episode {self.id_}")
        if self.is_done or self.t != other.t_started:
            raise ValueError(
                f"The chunk that starts at time step {other.t_started} cannot continue one that "
                f"{'is done' if self.is_done else 'ends'} at {self.t}"
            )
        mine, its = self.observations.get(-1), other.observations.get(0)
        if not all(np.array_equal(a, b) for a, b in zip(trees.leaves(mine), trees.leaves(its), strict=True)):
            raise ValueError(
                f"The chunks of episode {self.id_} do not have the same observation where they meet"
            )
        missing = self.extra_model_outputs.keys() ^ other.extra_model_outputs.keys()
        if missing and len(self) and len(other):
            raise ValueError(f"Only one of the chunks of episode {self.id_} has {', '.join(sorted(missing))}")
        infos, behind_mine = self.infos, slice(1, None)  # both chunks have the item where they meet
        self.observations.extend(other.observations.get(behind_mine))
        infos.extend(other.infos.get(behind_mine))
        self.actions.concat(other.actions)
        self.rewards.concat(other.rewards)
        for name, values in other.extra_model_outputs.items():
            self.extra_model_outputs.setdefault(name, Buffer()).concat(values)
        self.t = other.t
        self.is_terminated, self.is_truncated = other.is_terminated, other.is_truncated
        self._last_step_time = other._last_step_time
        self._custom_data.update(other._custom_data)
        self.validate()

    def cut(self, len_lookback_buffer: int = 0) -> SingleAgentEpisode:
        """An episode without steps that continues this one; its lookback has up to that many steps of this one.

        Raises:
            ValueError: the episode is done.
        """
        if self.is_done or len_lookback_buffer < 0:
            raise ValueError(f"{self!r} cannot be cut with a lookback of {len_lookback_buffer} steps")
        result = self.part(len(self), len(self), len_lookback_buffer)
        for buffer in (
            result.observations,
            result.actions,
            result.rewards,
            *result.extra_model_outputs.values(),
        ):
            buffer.to_list()
        result._custom_data = copy.deepcopy(self._custom_data)
        return result

    def __getitem__(self, item: slice) -> SingleAgentEpisode:
        if not isinstance(item, slice):
            raise TypeError(f"An episode takes slices, as in `episode[3:5]`, not {item!r}")
        return self.slice(item)

    def slice(self, slice_: slice, len_lookback_buffer: int | None = None) -> SingleAgentEpisode:
        """The chunk of these time steps; its arrays are views of this one's.

        Args:
            slice_: of the steps, without the lookback; without a step.
            len_lookback_buffer: how many steps before it to take along, if there are as many; by default as many as
                this episode has.

        Raises:
            ValueError: the slice has a step other than 1.
        """
        start, stop, step = slice_.indices(len(self))
        if step != 1:
            raise ValueError(f"An episode's slice cannot have the step {step}")
        lookback = self.rewards.lookback if len_lookback_buffer is None else len_lookback_buffer
        return self.part(start, max(start, stop), lookback)

    def part(self, start: int, stop: int, lookback: int) -> SingleAgentEpisode:
        """The chunk of the steps from `start` on, before `stop`; its arrays are views of this one's.

        Args:
            start, stop: time steps of this chunk; negative ones lie in its lookback.
            lookback: how many steps before it to take along, if there are as many.
        """
        at_end = stop == len(self)
        return SingleAgentEpisode(
            self.id_,
            observations=self.observations.part(start, stop + 1, lookback),
            observation_space=self.observation_space,
            infos=None if self._infos is None else self._infos.part(start, stop + 1, lookback),
            actions=self.actions.part(start, stop, lookback),
            action_space=self.action_space,
            rewards=self.rewards.part(start, stop, lookback),
            extra_model_outputs={
                name: values.part(start, stop, lookback) for name, values in self.extra_model_outputs.items()
            },
            terminated=at_end and self.is_terminated,
            truncated=at_end and self.is_truncated,
            t_started=self.t_started + start,
            agent_id=self.agent_id,
            module_id=self.module_id,
            multi_agent_episode_id=self.multi_agent_episode_id,
        )

    # ------------------------------------------------------------ other forms

    def get_data_dict(self) -> dict[str, Any]:
        """The steps as columns: "obs", "infos", "actions", "rewards", "terminateds", "truncateds", "t", "eps_id" and
        the module's outputs. Lists, or arrays once `to_numpy` was called."""
        return data_dict(self)

    def get_sample_batch(self) -> SampleBatch:
        """`get_data_dict` as a `SampleBatch`."""
        return SampleBatch(self.get_data_dict())

    def get_state(self) -> dict[str, Any]:
        """What `from_state` makes an equal episode of; it can be pickled."""
        return {
            "id_": self.id_,
            "agent_id": self.agent_id,
            "module_id": self.module_id,
            "multi_agent_episode_id": self.multi_agent_episode_id,
            "observations": self.observations.get_state(),
            "actions": self.actions.get_state(),
            "rewards": self.rewards.get_state(),
            "infos": self.infos.get_state(),
            "extra_model_outputs": {k: values.get_state() for k, values in self.extra_model_outputs.items()},
            "is_terminated": self.is_terminated,
            "is_truncated": self.is_truncated,
            "t_started": self.t_started,
            "t": self.t,
            "_observation_space": self._observation_space,
            "_action_space": self._action_space,
            "_start_time": self._start_time,
            "_last_step_time": self._last_step_time,
            "custom_data": dict(self._custom_data),
        }

    @staticmethod
    def from_state(state: dict[str, Any]) -> SingleAgentEpisode:
        """The episode that gave this state."""
        episode = SingleAgentEpisode(
            state["id_"],
            observations=Buffer.from_state(state["observations"]),
            observation_space=state["_observation_space"],
            infos=Buffer.from_state(state["infos"]),
            actions=Buffer.from_state(state["actions"]),
            action_space=state["_action_space"],
            rewards=Buffer.from_state(state["rewards"]),
            extra_model_outputs={
                name: Buffer.from_state(values)
                for name, values in (state["extra_model_outputs"] or {}).items()
            },
            terminated=state["is_terminated"],
            truncated=state["is_truncated"],
            t_started=state["t_started"],
            agent_id=state["agent_id"],
            module_id=state["module_id"],
            multi_agent_episode_id=state["multi_agent_episode_id"],
        )
        episode._start_time, episode._last_step_time = state["_start_time"], state["_last_step_time"]
        episode._custom_data = state.get("custom_data", {})
        return episode

    @classmethod
    def views_of(
        cls,
        rollout: Rollout,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        module_id: str | None = None,
    ) -> list[SingleAgentEpisode]:
        """An episode for each segment, in their order. Their arrays are views: of the rollout's, and, for
        observations, of one copy that has each segment's final one behind its rows. An episode that is written to
        copies its views first, so that the rollout stays as it is."""
        return views(
            cls, rollout, observation_space=observation_space, action_space=action_space, module_id=module_id
        )
