"""Environment runners as actors: creates them, calls them, and hears of their ends."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import runtime as ray
from runtime._extension import workers
from runtime.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError
from runtime.rllib._core.runner_group import Runners, RunnerState, Verdict
from runtime.rllib._core.types import Config

logger = logging.getLogger(__name__)

START = "_start"  # the tag of an actor's first call, which tells that it is up
COLLECT, SYNC, EACH = "_collect", "_sync", "_each"  # tags of a group's own calls
# Imported once per node, before workers are forked: torch alone takes a second.
MODULES = (
    "torch",
    "gymnasium",
    "runtime.rllib.env.single_agent_env_runner",
    "runtime.rllib.core.distribution.torch.torch_distribution",
)


class EnvRunnerFailedError(RayError):
    """An environment runner has died, or failed, and is not to be replaced."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(number, reason)
        self.number, self.reason = number, reason

    def __str__(self) -> str:
        return (
            f"Environment runner {self.number} has failed and is not replaced: {self.reason}\nSee "
            "`AlgorithmConfig.fault_tolerance`: restart_failed_env_runners, ignore_env_runner_failures, "
            "max_num_env_runner_restarts"
        )


@dataclasses.dataclass(slots=True, frozen=True)
class Call:
    """A call of an actor that has not ended."""

    number: int
    attempt: int
    tag: str | None
    began: float


@dataclasses.dataclass(slots=True, frozen=True)
class Ended:
    """A call that has ended."""

    call: Call
    ref: Any
    value: Any
    error: Exception | None


class RunnerActors:
    """The actors of a group.

    Args:
        cls: of the runners.
        config: of the runners.
        kwargs_of: by number of a runner, what its constructor gets besides.
        first_state: what a new runner is told with `set_state` before anything else; None: nothing.
    """

    def __init__(
        self,
        cls: type,
        config: Config,
        kwargs_of: Callable[[int], Mapping[str, Any]],
        first_state: Callable[[], Any],
    ) -> None:
        self.runners = Runners(
            restart=config.restart_failed_env_runners,
            ignore_failures=config.ignore_env_runner_failures,
            most_restarts=config.max_num_env_runner_restarts,
        )
        self.came_up: list[int] = []
        """Replacements that are up; the group takes them from here."""
        self._config, self._kwargs_of, self._first_state = config, kwargs_of, first_state
        self._cls = ray.remote(cls)
        self._config_ref: Any = None
        self._handles: dict[int, Any] = {}
        self._calls: dict[Any, Call] = {}
        self._ended: list[Ended] = []  # not taken yet
        self._failure: EnvRunnerFailedError | None = None

    def add(self, count: int) -> None:
        """Creates that many more."""
        for number in self.runners.add(count):
            self._create(number)

    def use(self, config: Config) -> None:
        """New actors get this configuration."""
        self._config, self._config_ref = config, None

    def handle(self, number: int) -> Any:
        """The actor's handle."""
        return self._handles[number]

    def call(self, number: int, method: str, tag: str | None, *args: Any, **kwargs: Any) -> Any:
        """Calls a method; returns the reference to its result."""
        ref = getattr(self._handles[number], method).remote(*args, **kwargs)
        self._calls[ref] = Call(number, self.runners.members[number].attempt, tag, time.monotonic())
        return ref

    def called(self, number: int, tag: str | None) -> int:
        """How many calls with this tag the runner has not ended, or whose results nobody took."""
        waiting = sum(call.number == number and call.tag == tag for call in self._calls.values())
        return waiting + sum(ended.call.number == number and ended.call.tag == tag for ended in self._ended)

    def in_flight(self, tag: str | None = None) -> int:
        """How many calls have not ended; of all tags by default."""
        return sum(call.tag != START and tag in (None, call.tag) for call in self._calls.values())

    def waiting(self) -> list[Call]:
        """The calls that have not ended, and those whose results nobody took."""
        return [*self._calls.values(), *(ended.call for ended in self._ended)]

    def pump(self, timeout_s: float | None = 0.0) -> bool:
        """Hears of calls that have ended; waits for one if there is none.

        Args:
            timeout_s: 0: does not wait; None: waits until one has ended, as the user asked for no timeout.

        Returns:
            Whether one has ended.

        Raises:
            EnvRunnerFailedError: a runner died, and that ends the group.
        """
        refs = [*self._calls]
        if not refs:
            if timeout_s:
                time.sleep(timeout_s)  # nothing can happen
            return False
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        if not ready and timeout_s != 0:
            ready, _ = ray.wait(refs, num_returns=1, timeout=timeout_s)
        for ref in ready:
            if ref in self._calls:  # else one before it told that the actor is gone
                self._hear(ref)
        return bool(ready)

    def take(self, tags: Collection[str | None] | None = None) -> list[Ended]:
        """The calls that have ended since, with these tags; all by default."""
        taken = [ended for ended in self._ended if tags is None or ended.call.tag in tags]
        if taken:
            self._ended = [ended for ended in self._ended if not (tags is None or ended.call.tag in tags)]
        return taken

    def wait_for_one(self, timeout_s: float | None) -> int:
        """The number of a runner that is up.

        Raises:
            EnvRunnerFailedError: none can be started.
            GetTimeoutError: none was up in that time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.runners.ready:
            if self._failure is not None and not self.runners.some_left():
                raise self._failure
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise GetTimeoutError(f"No environment runner was up after {timeout_s} s")
            self.pump(left)
        return self.runners.ready[0]

    def fail(self, number: int, attempt: int, reason: str) -> None:
        """A runner is of no use any more, though its process may run: ends it and replaces it.

        Raises:
            EnvRunnerFailedError: it is not to be replaced.
        """
        handle = self._handles.get(number)
        if handle is not None and attempt == self.runners.members[number].attempt:
            ray.kill(handle)
        self._died(number, attempt, reason, by_error=True)

    def stop(self) -> None:
        """Ends all actors."""
        now = time.monotonic()
        for number, handle in self._handles.items():
            self.runners.remove(number, now)
            ray.kill(handle)
        self._handles.clear()
        self._calls.clear()
        self._ended.clear()

    def remove(self, number: int) -> None:
        """Ends one actor for good."""
        self.runners.remove(number, time.monotonic())
        handle = self._handles.pop(number, None)
        if handle is not None:
            ray.kill(handle)
        self._forget(number)

    # ------------------------------------------------------------ inside

    def _create(self, number: int) -> None:
        config = self._config
        if self._config_ref is None:
            self._config_ref = ray.put(config)
        options: dict[str, Any] = {
            "num_cpus": config.num_cpus_per_env_runner,
            "num_gpus": config.num_gpus_per_env_runner,
            "resources": dict(config.custom_resources_per_env_runner),
            "runtime_env": workers.preloaded(*MODULES, runtime_env=_environment(config)),
        }
        kwargs = self._kwargs_of(number)
        self._handles[number] = self._cls.options(**options).remote(config=self._config_ref, **kwargs)
        state = self._first_state()
        if state is None:
            self.call(number, "ping", START)
        else:
            self.call(number, "set_state", START, state)

    def _hear(self, ref: Any) -> None:
        call = self._calls.pop(ref)
        value: Any = None
        error: RayError | None = None
        try:
            value = ray.get(ref)
        except RayError as raised:
            error = raised
        now = time.monotonic()
        if error is None:
            if call.tag == START:
                if self.runners.up(call.number, call.attempt, now) and call.attempt:
                    self.came_up.append(call.number)
            else:
                self._ended.append(Ended(call, ref, value, None))
            return
        if call.tag != START:
            self._ended.append(Ended(call, ref, None, error))
        died = isinstance(error, RayActorError) and not isinstance(
            error, RayTaskError | ActorUnavailableError
        )
        if died or call.tag == START:
            self._died(call.number, call.attempt, str(error))

    def _died(self, number: int, attempt: int, reason: str, by_error: bool = False) -> None:
        verdict = self.runners.died(number, attempt, time.monotonic(), by_error=by_error)
        if verdict is Verdict.NOTHING:
            return
        self._forget(number, attempt)
        if verdict is Verdict.REPLACE:
            logger.warning("Environment runner %d has died and is replaced: %s", number, reason)
            self._create(number)
            return
        self._handles.pop(number, None)
        if verdict is Verdict.FAIL:
            self._failure = EnvRunnerFailedError(number, reason)
            raise self._failure
        logger.warning("Environment runner %d has died; the others go on without it: %s", number, reason)

    def _forget(self, number: int, attempt: int | None = None) -> None:
        """Calls of an actor that is gone end now."""
        for ref, call in [*self._calls.items()]:
            if call.number == number and attempt in (None, call.attempt):
                del self._calls[ref]
                if call.tag != START:
                    gone = RayError(f"Environment runner {number} is gone")
                    self._ended.append(Ended(call, ref, None, gone))


def _environment(config: Config) -> dict[str, Any] | None:
    variables = config.extra_python_environs_for_worker
    return {"env_vars": dict(variables)} if variables else None


def numbers_of(actors: RunnerActors, chosen: Sequence[int] | None, healthy_only: bool) -> list[int]:
    """The runners to call: those, or all; of those that start, only the first actor of a place if `healthy_only`: its
    calls wait until it is up, as nothing has gone wrong with it yet."""
    members = actors.runners.members
    found = []
    for number in members if chosen is None else chosen:
        runner = members.get(number)
        if runner is None:
            continue
        starts = runner.state is RunnerState.STARTING and not (healthy_only and runner.attempt)
        if starts or runner.state is RunnerState.READY:
            found.append(number)
    return found
