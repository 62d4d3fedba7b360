"""Reading and writing what an episode of several agents holds, in the environment's time or the agents' own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Unpack

import numpy as np

from .._core.types import AgentID
from ..policy.sample_batch import MultiAgentBatch
from .single_agent_episode import SingleAgentEpisode
from .utils.infinite_lookback_buffer import Indices, Reading, Writing

ALL = "__all__"
AgentIDs = Collection[AgentID] | AgentID | None


class AgentReading(Reading, total=False):
    """Keywords of the getters: those of one agent's episode, and those of several agents' time."""

    env_steps: bool
    return_list: bool


class AgentReadingOfSpace(AgentReading, total=False):
    """The same of items of a space."""

    one_hot_discrete: bool


class AgentItems:
    """What a `MultiAgentEpisode` says of its items, and its getters and setters."""

    __slots__ = ()

    id_: str
    env_t_started: int
    env_t: int
    agent_episodes: dict[AgentID, SingleAgentEpisode]
    is_terminated: bool
    is_truncated: bool
    _steps: dict[AgentID, list[int]]

    def get_sample_batch(self) -> MultiAgentBatch:
        """The steps of each agent as a batch, by agent; agents without steps are left out."""
        batches = {
            agent_id: part.get_sample_batch() for agent_id, part in self.agent_episodes.items() if len(part)
        }
        return MultiAgentBatch(batches, env_steps=self.env_t - self.env_t_started)

    def get_terminateds(self) -> dict[AgentID, bool]:
        """Whether each agent, and the episode ("__all__"), ended by itself."""
        flags = {agent_id: episode.is_terminated for agent_id, episode in self.agent_episodes.items()}
        return {**flags, ALL: self.is_terminated}

    def get_truncateds(self) -> dict[AgentID, bool]:
        """Whether a limit ended each agent, and the episode ("__all__")."""
        flags = {agent_id: episode.is_truncated for agent_id, episode in self.agent_episodes.items()}
        return {**flags, ALL: self.is_truncated}

    def get_agents_that_stepped(self) -> set[AgentID]:
        """The agents with an observation at the last environment step."""
        return {agent_id for agent_id, steps in self._steps.items() if steps[-1] == self.env_t}

    def get_agents_to_act(self) -> set[AgentID]:
        """The agents whose actions `env.step` expects next."""
        stepped = self.get_agents_that_stepped()
        return {agent_id for agent_id in stepped if not self.agent_episodes[agent_id].is_done}

    def print(self) -> None:
        """Prints a table of the environment steps at which each agent had an observation."""
        first = min((steps[0] for steps in self._steps.values()), default=self.env_t)
        times = range(first, self.env_t + 1)
        width = max((len(str(agent_id)) for agent_id in self._steps), default=0) + 2
        lines = ["ts".ljust(width) + "".join(str(t).ljust(4) for t in times)]
        for agent_id, steps in self._steps.items():
            marks = "".join(("x" if t in steps else " ").ljust(4) for t in times)
            lines.append(f"{agent_id}".ljust(width) + marks)
        print("\n".join(line.rstrip() for line in lines))  # it is what the method is for

    def get_observations(
        self, indices: Indices = None, agent_ids: AgentIDs = None, **how: Unpack[AgentReadingOfSpace]
    ) -> Any:
        """Observations.

        Args:
            indices: one, a range or a list of time steps; None gives all of the chunk.
            agent_ids: one or several agents; None gives all.
            how: env_steps: whether time steps are the environment's (the default), or each agent's own.
                neg_index_as_lookback: whether negative time steps lie before the chunk. Otherwise they count from its
                end.
                fill: the value of items outside of the chunk and its lookback.
                one_hot_discrete: whether discrete parts of the space become one-hot vectors.
                return_list: give a list of one dict per environment step.

        Returns:
            Agent id -> its item for one time step, else its list of items or tree of arrays. In environment time, only
            agents that have an item there.
        """
        return self._get("observations", indices, agent_ids, **how)

    def get_infos(
        self, indices: Indices = None, agent_ids: AgentIDs = None, **how: Unpack[AgentReading]
    ) -> Any:
        """Info dicts; see `get_observations`."""
        return self._get("infos", indices, agent_ids, **how)

    def get_actions(
        self, indices: Indices = None, agent_ids: AgentIDs = None, **how: Unpack[AgentReadingOfSpace]
    ) -> Any:
        """Actions of complete steps; see `get_observations`."""
        return self._get("actions", indices, agent_ids, **how)

    def get_rewards(
        self, indices: Indices = None, agent_ids: AgentIDs = None, **how: Unpack[AgentReading]
    ) -> Any:
        """Rewards of complete steps; see `get_observations`."""
        return self._get("rewards", indices, agent_ids, **how)

    def get_extra_model_outputs(
        self,
        key: str | None = None,
        indices: Indices = None,
        agent_ids: AgentIDs = None,
        **how: Unpack[AgentReading],
    ) -> Any:
        """One of the modules' outputs, or dicts of all (`key` None); see `get_observations`."""
        return self._get("extra_model_outputs", indices, agent_ids, **how, key=key)

    def set_observations(self, *, new_data: Mapping[AgentID, Any], **where: Unpack[Writing]) -> None:
        """Overwrites observations of agents; time steps are the agents' own.

        Args:
            new_data: agent id -> what `SingleAgentEpisode.set_observations` takes.
            where: see there.

        Raises:
            KeyError: an agent is not in the episode.
        """
        self._set("observations", new_data, **where)

    def set_actions(self, *, new_data: Mapping[AgentID, Any], **where: Unpack[Writing]) -> None:
        """Overwrites actions; see `set_observations`."""
        self._set("actions", new_data, **where)

    def set_rewards(self, *, new_data: Mapping[AgentID, Any], **where: Unpack[Writing]) -> None:
        """Overwrites rewards; see `set_observations`."""
        self._set("rewards", new_data, **where)

    def set_extra_model_outputs(
        self, *, key: str, new_data: Mapping[AgentID, Any], **where: Unpack[Writing]
    ) -> None:
        """Overwrites an output, or adds a new one for all steps; see `set_observations`."""
        self._set("extra_model_outputs", new_data, key=key, **where)

    def _set(self, what: str, new_data: Mapping[AgentID, Any], **where: Any) -> None:
        for agent_id, data in new_data.items():
            if agent_id not in self.agent_episodes:
                raise KeyError(
                    f"Episode {self.id_} has no agent {agent_id!r}; it has {sorted(map(str, self.agent_episodes))}"
                )
            getattr(self.agent_episodes[agent_id], f"set_{what}")(new_data=data, **where)

    def _selected(self, agent_ids: Any) -> Iterator[tuple[AgentID, SingleAgentEpisode]]:
        if agent_ids is None:
            chosen: Any = self.agent_episodes
        elif isinstance(agent_ids, list | tuple | set | frozenset):
            chosen = agent_ids
        else:
            chosen = [agent_ids]
        return ((a, self.agent_episodes[a]) for a in chosen if a in self.agent_episodes)

    def _get(
        self,
        what: str,
        indices: Indices,
        agent_ids: Any,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        return_list: bool = False,
        **more: Any,
    ) -> Any:
        if not env_steps:
            if return_list:
                raise ValueError(
                    "return_list=True needs env_steps=True: agents' own time steps are not aligned"
                )
            more = {**more, "neg_index_as_lookback": neg_index_as_lookback, "fill": fill}
            return {
                a: getattr(e, f"get_{what}")(indices=indices, **more) for a, e in self._selected(agent_ids)
            }
        last = self.env_t if what in ("observations", "infos") else self.env_t - 1
        times = self._times(indices, last, neg_index_as_lookback)
        more = {**more, "neg_index_as_lookback": True, "fill": fill}

        def place(agent_id: AgentID, episode: SingleAgentEpisode, env_t: int) -> int | None:
            """The agent's own time step of an item, or of none for one that is filled."""
            index = self._own_index(agent_id, episode, what, env_t)
            if index is None and fill is not None and not self._first_time() <= env_t <= last:
                return len(episode) + 1
            return index

        def at(env_t: int) -> dict[AgentID, Any]:
            places = {a: (e, place(a, e, env_t)) for a, e in self._selected(agent_ids)}
            return {
                a: getattr(e, f"get_{what}")(indices=index, **more)
                for a, (e, index) in places.items()
                if index is not None
            }

        if isinstance(times, int):
            return [at(times)] if return_list else at(times)
        if return_list:
            return [at(t) for t in times]
        result = {}
        for agent_id, episode in self._selected(agent_ids):
            wanted = [index for t in times if (index := place(agent_id, episode, t)) is not None]
            if wanted:
                result[agent_id] = getattr(episode, f"get_{what}")(indices=wanted, **more)
        return result

    def _times(self, indices: Indices, last: int, neg_index_as_lookback: bool) -> int | list[int]:
        """The environment steps of these indices."""
        start = self.env_t_started

        def at(index: int) -> int:
            return start + index if index >= 0 or neg_index_as_lookback else last + 1 + index

        if indices is None:
            return [*range(start, last + 1)]
        if isinstance(indices, int | np.integer):
            return at(int(indices))
        if not isinstance(indices, slice):
            return [at(int(index)) for index in indices]
        step = 1 if indices.step is None else indices.step
        first, stop = (start, last + 1) if step > 0 else (last, start - 1)
        first = first if indices.start is None else at(indices.start)
        stop = stop if indices.stop is None else at(indices.stop)
        return [*range(first, stop, step)]

    def _first_time(self) -> int:
        """The first environment step of the lookback."""
        return min((steps[0] for steps in self._steps.values()), default=self.env_t_started)

    def _own_index(self, agent_id: AgentID, episode: SingleAgentEpisode, what: str, env_t: int) -> int | None:
        """The agent's own time step, relative to its chunk, of its item at an environment step."""
        steps = self._steps[agent_id]
        position = bisect_left(steps, env_t)
        if position == len(steps) or steps[position] != env_t:
            return None
        if what not in ("observations", "infos") and position == len(steps) - 1:
            return None  # it has not acted, or its step is not complete
        return position - episode.observations.lookback
