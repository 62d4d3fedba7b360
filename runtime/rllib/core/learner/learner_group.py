"""The learners of an algorithm: one in its own process, or several in actors."""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import runtime
from runtime._extension.workers import preloaded
from runtime.exceptions import ActorDiedError
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ..._core.types import Config, ModuleID
from ...env._runner_actors import MODULES
from ...utils.checkpoints import Checkpointable
from .. import COMPONENT_LEARNER, COMPONENT_RL_MODULE
from ..rl_module.multi_rl_module import validate_module_id
from .learner import Learner
from .learner_actor import STATE_AFTER_UPDATE, LearnerActor
from .module_changes import record_modules
from .training_data import TrainingData, columns_by_module, row_count

log = logging.getLogger(__name__)

BUILD_TIMEOUT_S = 300.0
"""How long learners may take to start: to get their resources, to import torch, to build the module."""
SHUTDOWN_TIMEOUT_S = 5.0
OTHER_ERRORS_TIMEOUT_S = 2.0
"""How long to wait, after one learner has failed, for the errors of the others: one of them may be the cause."""


class LearnerDiedError(RuntimeError):
    """A learner's process has ended. The group cannot go on: the others wait for its gradients.

    Attributes:
        index: number of the learner.
        count: how many learners the group has.
    """

    def __init__(self, index: int, count: int, reason: str) -> None:
        super().__init__(index, count, reason)
        self.index, self.count, self.reason = index, count, reason

    def __str__(self) -> str:
        return (
            f"Learner {self.index} of {self.count} has died: {self.reason}. Its group was shut down. Build the "
            "algorithm again and restore it from its latest checkpoint (Algorithm.from_checkpoint)"
        )


class LearnerGroup(Checkpointable):
    """Updates a module on `num_learners` actors, or in this process if that is 0.

    Args:
        config: an AlgorithmConfig.
        module_spec: specification of the modules; None: that of the config.
        placement_group: where actors run: in its bundles behind the first; None: where there is room.
    """

    def __init__(self, *, config: Config, module_spec: Any = None, placement_group: Any = None) -> None:
        self.config = config.copy(copy_frozen=False)
        self._module_spec = module_spec
        self._placement_group = placement_group
        self._learner: Learner | None = None
        self._actors: list[Any] = []
        self._in_flight: deque[list[Any]] = deque()  # references to results, one list per asynchronous update
        self._ts_dropped = 0
        learner_class = self.config.learner_class
        spec = module_spec or self.config.get_multi_rl_module_spec()
        if self.is_local:
            self._learner = learner_class(config=config, module_spec=spec)
            self._learner.build()
        else:
            self._start(learner_class, {"config": config, "module_spec": spec})

    def _start(self, learner_class: type, kwargs: dict[str, Any]) -> None:
        config = self.config
        cpus = config.num_cpus_per_learner
        if cpus == "auto":
            cpus = 0 if config.num_gpus_per_learner > 0 else 1
        count = config.num_learners
        for index in range(count):
            options: dict[str, Any] = {
                "num_cpus": cpus,
                "num_gpus": max(0, config.num_gpus_per_learner),
                "resources": config.custom_resources_per_learner or None,
                "runtime_env": preloaded(*MODULES),
            }
            if self._placement_group is not None:
                options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._placement_group)
            actor = runtime.remote(LearnerActor).options(**options)
            self._actors.append(actor.remote(learner_class, kwargs, index, count))
        host, port = None, 0
        if count > 1:
            host, port = self._results([self._actors[0].open_store.remote()], timeout_s=BUILD_TIMEOUT_S)[0]
        self._results([actor.build.remote(host, port) for actor in self._actors], timeout_s=BUILD_TIMEOUT_S)

    @property
    def is_remote(self) -> bool:
        """Whether the learners are actors."""
        return bool(self.config.num_learners > 0)

    @property
    def is_local(self) -> bool:
        """Whether the learner is in this process."""
        return not self.is_remote

    def __len__(self) -> int:
        """Number of actors."""
        return len(self._actors)

    def __bool__(self) -> bool:
        return True  # `len` must not make a local group false

    def get_stats(self) -> dict[str, Any]:
        """Numbers about asynchronous updates."""
        return {
            "learner_group_ts_dropped_lifetime": self._ts_dropped,
            "actor_manager_num_outstanding_async_reqs": sum(map(len, self._in_flight)),
        }

    # ---- updates

    def update(
        self,
        *,
        batch: Any = None,
        batches: list[Any] | None = None,
        batch_refs: list[Any] | None = None,
        episodes: list[Any] | None = None,
        episodes_refs: list[Any] | None = None,
        data_iterators: list[Any] | None = None,
        training_data: TrainingData | None = None,
        rollouts: Any = None,
        timesteps: dict[str, Any] | None = None,
        async_update: bool = False,
        return_state: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Updates the learners, each with its shard of the data.

        Args:
            batch, batches, batch_refs, episodes, episodes_refs, data_iterators, rollouts: the data, in one of these
                forms; see `TrainingData`.
            training_data: the data, instead of one of the others.
            timesteps: what schedules go by; see `Learner.update`.
            async_update: do not wait: the results are those of earlier updates. If the learners are behind by
                `max_requests_in_flight_per_learner` updates, the data is dropped and counted. Only with actors.
            return_state: whether the first result has the module's weights under "_rl_module_state_after_update".
            kwargs: of `Learner.update`.

        Returns:
            One result of `Learner.update` per learner; with `async_update` those of all updates that have ended since.

        Raises:
            LearnerDiedError: a learner's process has ended.
            ValueError: `async_update` without actors.
        """
        data = training_data or TrainingData(
            batch, batches, batch_refs, episodes, episodes_refs, data_iterators, rollouts
        )
        data.validate()
        kwargs["timesteps"] = timesteps
        if self._learner is not None:
            if async_update:
                raise ValueError(
                    "async_update=True needs learners in actors: set config.learners(num_learners=1) or more"
                )
            result = self._learner.update(training_data=data, **kwargs)
            if return_state:
                state = self._learner.get_state(COMPONENT_RL_MODULE, inference_only=True)
                result[STATE_AFTER_UPDATE] = state[COMPONENT_RL_MODULE]
            return [result]
        done = self._ended() if async_update else []
        if async_update and len(self._in_flight) >= self.config.max_requests_in_flight_per_learner:
            self._ts_dropped += _steps_of(data)
            return done
        refs = self._sent(data, kwargs, return_state)
        if async_update:
            self._in_flight.append(refs)
            return done
        # No deadline: an update takes as long as the data needs. A learner that dies ends the wait.
        return self._results(refs)

    def _sent(self, data: TrainingData, kwargs: dict[str, Any], return_state: bool) -> list[Any]:
        shards = data.shard(len(self))
        return [
            actor.update.remote({"training_data": shard, **kwargs}, return_state and i == 0)
            for i, (actor, shard) in enumerate(zip(self._actors, shards, strict=True))
        ]

    def _ended(self) -> list[Any]:
        """Results of the asynchronous updates that have ended, in order."""
        done: list[Any] = []
        while self._in_flight:
            refs = self._in_flight[0]
            ready, _ = runtime.wait(refs, num_returns=len(refs), timeout=0)
            if len(ready) < len(refs):
                if (
                    ready
                ):  # an error of one learner must not wait for the others, which may wait for that learner
                    self._results(ready)
                break
            self._in_flight.popleft()
            done += self._results(refs)
        return done

    def update_results(self) -> list[Any]:
        """Results of asynchronous updates that have ended and were not returned yet.

        Raises:
            LearnerDiedError: a learner's process has ended.
        """
        return self._ended()

    def wait_for_room(self, timeout_s: float) -> None:
        """Waits until an asynchronous update would not be dropped, or the timeout has passed."""
        if len(self._in_flight) >= self.config.max_requests_in_flight_per_learner:
            refs = self._in_flight[0]
            runtime.wait(refs, num_returns=len(refs), timeout=timeout_s)

    def _results(self, refs: list[Any], timeout_s: float | None = None) -> list[Any]:
        """The results in order. The first error ends the wait: with a learner gone, others may never answer."""
        waiting = list(refs)
        while waiting:
            ready, waiting = runtime.wait(waiting, num_returns=1, timeout=timeout_s)
            if not ready:
                self.shutdown()
                raise TimeoutError(
                    f"{len(waiting)} of {len(refs)} learners did not answer within {timeout_s:.0f} s. Check that the "
                    f"cluster has the resources of {len(refs)} learners: ray.available_resources()"
                )
            try:
                runtime.get(ready)
            except Exception as error:
                self._fail(refs, ready[0], error)
        return list(runtime.get(list(refs)))

    def _fail(self, refs: list[Any], failed: Any, error: Exception) -> NoReturn:
        """Raises the cause of an error: a learner that died makes the others fail, too.

        The group is shut down if a learner has died, or if others wait for the one that failed.
        """
        others = [ref for ref in refs if ref != failed]
        ended, waiting = [failed], others
        if others:
            done, waiting = runtime.wait(others, num_returns=len(others), timeout=OTHER_ERRORS_TIMEOUT_S)
            ended += done
        death: LearnerDiedError | None = None
        for ref in ended:  # all are looked at, so that none counts as unhandled
            try:
                runtime.get(ref)
            except ActorDiedError as cause:
                death = death or LearnerDiedError(refs.index(ref), len(self), str(cause))
            except Exception as other:
                log.debug("A learner failed: %s", other)
        if death is not None or waiting:
            self.shutdown()
        raise death or error

    # ---- calls and state

    def foreach_learner(
        self,
        func: Callable[..., Any],
        *,
        remote_actor_ids: list[int] | None = None,
        timeout_seconds: float | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """`func(learner, **kwargs)` of each learner.

        Args:
            func: the function; it is sent to the actors.
            remote_actor_ids: numbers of the learners to call; None: all.
            timeout_seconds: for all answers together; None: as long as the function takes.

        Returns:
            The results, in order of the learners.

        Raises:
            LearnerDiedError: a learner's process has ended.
        """
        if self._learner is not None:
            return [func(self._learner, **kwargs)]
        numbers = range(len(self)) if remote_actor_ids is None else remote_actor_ids
        return self._results([self._actors[i].apply.remote(func, kwargs) for i in numbers], timeout_seconds)

    def add_module(
        self,
        *,
        module_id: ModuleID,
        module_spec: Any,
        config_overrides: dict[str, Any] | None = None,
        new_should_module_be_updated: Any = None,
    ) -> Any:
        """Adds a module to all learners; arguments and result as of `Learner.add_module`."""
        validate_module_id(module_id)
        spec = copy.deepcopy(module_spec)
        spec.inference_only = False
        arguments = {
            "module_id": module_id,
            "module_spec": spec,
            "config_overrides": config_overrides,
            "new_should_module_be_updated": new_should_module_be_updated,
        }
        result = self.foreach_learner(lambda learner: learner.add_module(**arguments))[0]
        record_modules(
            self.config, result, new_should_module_be_updated, added=module_id, overrides=config_overrides
        )
        return result

    def remove_module(self, module_id: ModuleID, *, new_should_module_be_updated: Any = None) -> Any:
        """Removes a module from all learners; arguments and result as of `Learner.remove_module`."""
        result = self.foreach_learner(
            lambda learner: learner.remove_module(
                module_id, new_should_module_be_updated=new_should_module_be_updated
            )
        )[0]
        record_modules(self.config, result, new_should_module_be_updated, removed=module_id)
        return result

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The state of the first learner, under "learner". All have the same weights."""
        if not self._check_component(COMPONENT_LEARNER, components, not_components):
            return {}
        arguments = {
            "components": self._get_subcomponents(COMPONENT_LEARNER, components),
            "not_components": self._get_subcomponents(COMPONENT_LEARNER, not_components),
            **kwargs,
        }
        state = self.foreach_learner(
            lambda learner: learner.get_state(**arguments), remote_actor_ids=[0] if self.is_remote else None
        )[0]
        return {COMPONENT_LEARNER: state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets the state of all learners."""
        if COMPONENT_LEARNER not in state:
            return
        own = state[COMPONENT_LEARNER]
        if self._learner is not None:
            self._learner.set_state(own)
            return
        shared = runtime.put(own)  # one copy for all
        self.foreach_learner(lambda learner: learner.set_state(runtime.get(shared)))

    def get_weights(
        self,
        module_ids: Collection[ModuleID] | None = None,
        *,
        policies: Collection[ModuleID] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> dict[ModuleID, Any]:
        """Module id -> weights, NumPy arrays by name.

        Args:
            module_ids: the modules; None: all.
            policies: the same, under the name that environment runners use.
            inference_only: without what only training needs.
            kwargs: for the modules' `get_state`, such as `copy`.
        """
        module_ids = policies if module_ids is None else module_ids
        base = f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}"
        components = base if module_ids is None else [f"{base}/{module_id}" for module_id in module_ids]
        state = self.get_state(components, inference_only=inference_only, **kwargs)
        return state[COMPONENT_LEARNER][COMPONENT_RL_MODULE]

    def set_weights(self, weights: dict[ModuleID, Any]) -> None:
        """Sets what `get_weights` gave."""
        self.set_state({COMPONENT_LEARNER: {COMPONENT_RL_MODULE: weights}})

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What makes an equal group."""
        return (), {"config": self.config, "module_spec": self._module_spec}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The learner: of several, the first is saved, and all are restored."""
        return [
            (COMPONENT_LEARNER, self._learner if self._learner is not None else _AllLearners(self._actors))
        ]

    def shutdown(self) -> None:
        """Ends all learners. More calls have no effect."""
        if self._learner is not None:
            self._learner.shutdown()
        actors, self._actors = self._actors, []
        self._in_flight.clear()
        leaving = [actor.shutdown.remote() for actor in actors]
        if leaving:
            runtime.wait(leaving, num_returns=len(leaving), timeout=SHUTDOWN_TIMEOUT_S)
        for actor in actors:
            runtime.kill(actor)


class _Call:
    """Has `remote` as an actor's method does."""

    def __init__(self, remote: Callable[..., Any]) -> None:
        self.remote = remote


class _AllLearners:
    """Stands for the actors as one component of a checkpoint."""

    def __init__(self, actors: list[Any]) -> None:
        self.packed_checkpoint = actors[0].packed_checkpoint
        self.restore_packed_checkpoint = _Call(
            lambda *args: [actor.restore_packed_checkpoint.remote(*args) for actor in actors]
        )


def _steps_of(data: TrainingData) -> int:
    if data.rollouts is not None:
        return sum(rollout.rows for rollout in data.rollouts.values())
    if data.batch is not None:
        return sum(row_count(columns) for columns in columns_by_module(data.batch).values())
    return sum(map(len, data.episodes or ()))
