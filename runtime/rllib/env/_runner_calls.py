"""Calls of all environment runners of a group, with Ray's methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from runtime.exceptions import RayActorError, RayTaskError
from runtime.rllib._core.types import Config
from runtime.rllib.env._runner_actors import COLLECT, EACH, SYNC, Ended, RunnerActors, numbers_of

Function = str | Callable[[Any], Any] | Sequence[str | Callable[[Any], Any]]


class RunnerCalls:
    """What `EnvRunnerGroup` has of functions that are called with its runners."""

    _actors: RunnerActors
    _config: Config
    _count: int
    _has_local: bool

    @property
    def local_env_runner(self) -> Any:
        """The local runner; None if there is none."""
        raise NotImplementedError

    def foreach_env_runner(
        self,
        func: Function,
        *,
        kwargs: Mapping[str, Any] | None = None,
        local_env_runner: bool = True,
        healthy_only: bool = True,
        remote_worker_ids: Collection[int] | None = None,
        timeout_seconds: float | None = None,
        return_obj_refs: bool = False,
        mark_healthy: bool = False,
    ) -> list[Any]:
        """Calls a function with each runner, or a method of each; the results in the order of the runners.

        Args:
            func: a function of the runner, a method's name, or a list of them: one per remote runner.
            kwargs: further arguments.
            local_env_runner: whether to call the local runner, too; its result is the first.
            healthy_only: whether to leave out runners that start anew after a failure.
            remote_worker_ids: the remote runners; by default all.
            timeout_seconds: how long to wait; None: as long as it takes. Results that are later are left out.
            return_obj_refs: whether to give references instead of values for remote runners.
            mark_healthy: not used; a runner that answers is up.

        Raises:
            RayTaskError: the function raised an error.
        """
        results: list[Any] = []
        functions = func if isinstance(func, list | tuple) else None
        if local_env_runner and self._has_local:
            local = self._local_runner()
            results.append(_apply(functions[0] if functions else func, local, kwargs))
            functions = functions[1:] if functions and len(functions) > self._count else functions
        self._actors.pump()
        ids = None if remote_worker_ids is None else [*remote_worker_ids]
        chosen = numbers_of(self._actors, ids, healthy_only)
        refs = [
            self._submit(number, functions[place] if functions else func, kwargs, EACH)
            for place, number in enumerate(chosen)
        ]
        if return_obj_refs:
            return [*results, *refs]
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        missing, ended = set(refs), dict[Any, Ended]()
        while missing:
            for done in self._actors.take((EACH,)):
                ended[done.ref] = done
                missing.discard(done.ref)
            left = None if deadline is None else deadline - time.monotonic()
            if not missing or (left is not None and left < 0):
                break
            self._actors.pump(left)
        for done in [ended[ref] for ref in refs if ref in ended]:
            if isinstance(done.error, RayTaskError) and not isinstance(done.error, RayActorError):
                raise done.error
            if done.error is None:
                results.append(done.value)
        return results

    def foreach_env_runner_async(
        self,
        func: Function,
        tag: str | None = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        healthy_only: bool = True,
        remote_worker_ids: Collection[int] | None = None,
    ) -> int:
        """`foreach_env_runner` for the remote runners, without waiting: `fetch_ready_async_reqs` gives the results.

        Returns:
            The number of calls: runners with `config.max_requests_in_flight_per_env_runner` calls of the tag that have
            not ended are not called.
        """
        self._actors.pump()
        most = self._config.max_requests_in_flight_per_env_runner
        ids = None if remote_worker_ids is None else [*remote_worker_ids]
        made = 0
        for place, number in enumerate(numbers_of(self._actors, ids, healthy_only)):
            if self._actors.called(number, tag) < most:
                each = func[place] if isinstance(func, list | tuple) else func
                self._submit(number, each, kwargs, tag)
                made += 1
        return made

    def fetch_ready_async_reqs(
        self,
        *,
        tags: str | Collection[str] | None = None,
        timeout_seconds: float | None = 0.0,
        return_obj_refs: bool = False,
        mark_healthy: bool = False,
    ) -> list[tuple[int, Any]]:
        """The results of `foreach_env_runner_async` that are there: pairs of a runner's number and its result.

        Args:
            tags: only of calls with these tags.
            timeout_seconds: how long to wait for the first; None: as long as it takes.
            return_obj_refs: whether to give references instead of values.
            mark_healthy: not used; a runner that answers is up.

        Raises:
            RayTaskError: the function raised an error.
        """
        wanted: Collection[str | None] | None = [tags] if isinstance(tags, str) else tags
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            self._actors.pump()
            known = {call.tag for call in self._actors.waiting()}
            mine = (
                wanted if wanted is not None else [tag for tag in known if tag not in (COLLECT, SYNC, EACH)]
            )
            ended = self._actors.take(mine)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if ended or left == 0 or not self._actors.in_flight():
                break
            self._actors.pump(left)
        results = []
        for done in ended:
            if isinstance(done.error, RayTaskError) and not isinstance(done.error, RayActorError):
                raise done.error
            if done.error is None:
                results.append((done.call.number, done.ref if return_obj_refs else done.value))
        return results

    def foreach_env_runner_async_fetch_ready(
        self,
        func: Function,
        kwargs: Mapping[str, Any] | None = None,
        tag: str | None = None,
        timeout_seconds: float | None = 0.0,
        return_obj_refs: bool = False,
        mark_healthy: bool = False,
        healthy_only: bool = True,
        remote_worker_ids: Collection[int] | None = None,
        return_actor_ids: bool = False,
    ) -> list[Any]:
        """`foreach_env_runner_async`, then `fetch_ready_async_reqs` for the tag.

        Args:
            return_actor_ids: whether to give pairs of a runner's number and its result.
        """
        tag = tag or "_async"
        self.foreach_env_runner_async(
            func, tag, kwargs=kwargs, healthy_only=healthy_only, remote_worker_ids=remote_worker_ids
        )
        pairs = self.fetch_ready_async_reqs(
            tags=tag, timeout_seconds=timeout_seconds, return_obj_refs=return_obj_refs
        )
        return pairs if return_actor_ids else [result for _, result in pairs]

    def foreach_env(self, func: Callable[[Any], Any]) -> list[list[Any]]:
        """Calls a function with each environment of each runner; a list per runner."""
        return self.foreach_env_runner(lambda runner: [func(env) for env in _envs_of(runner)])

    def _local_runner(self) -> Any:
        runner = self.local_env_runner
        if runner is None:
            raise ValueError("The group has neither remote environment runners nor a local one")
        return runner

    def _submit(self, number: int, func: Any, kwargs: Mapping[str, Any] | None, tag: str | None) -> Any:
        if isinstance(func, str):
            return self._actors.call(number, func, tag, **(kwargs or {}))
        return self._actors.call(number, "apply", tag, func, **(kwargs or {}))


def _apply(func: Any, runner: Any, kwargs: Mapping[str, Any] | None) -> Any:
    if isinstance(func, str):
        return getattr(runner, func)(**(kwargs or {}))
    return func(runner, **(kwargs or {}))


def _envs_of(runner: Any) -> list[Any]:
    env = runner.env
    if env is None:
        return []
    return list(getattr(env.unwrapped, "envs", None) or [env])
