"""An environment runner whose environment, and the policy's inference, are in another process: a client over TCP."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

import runtime

from ..._core.types import DEFAULT_MODULE_ID, Config
from ...core import COMPONENT_RL_MODULE
from ...utils import metrics as names
from .. import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from .._agent_metrics import DEFAULT_AGENT_ID, AgentMetrics, FinishedEpisode
from ..env_runner import Collected, EnvRunner
from ..single_agent_episode import SingleAgentEpisode, to_rollout
from .rllink import RLlink, get_rllink_message, send_rllink_message

logger = logging.getLogger(__name__)

DEFAULT_PORT = 5555

_POLL_S = 0.2  # how often the listener looks whether the runner was stopped
_MESSAGE_TIMEOUT_S = 60.0  # for a message of which the first byte has come, and for sending one
_MOST_PENDING_STEPS = 200_000  # further episodes wait in the client's socket until the algorithm took these


class EnvRunnerServerForExternalInference(EnvRunner):
    """Waits for the episodes that one client sends, and gives it weights; see `rllink` for the protocol.

    It listens at `config.env_config["port"]` (default 5555) plus its worker index, on `config.env_config["host"]`
    (default "localhost"). With port 0 the system chooses one: see `port`. The client computes actions itself, so the
    module here only holds weights, and the configuration needs an observation and an action space but no environment.
    A client that is gone may come again, or another one.
    """

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        """Starts to listen.

        Args:
            config: an `AlgorithmConfig`.
            kwargs: see `EnvRunner`.

        Raises:
            OSError: the port is taken.
        """
        super().__init__(config=config, **kwargs)
        self._counted = AgentMetrics(self.metrics, self.config)
        self._weights_seq = 0
        self.num_env_steps_sampled_lifetime = 0
        # Of episodes that go on: steps, return and seconds of what was delivered, which others may change.
        self._reports: dict[str, tuple[int, float, float]] = {}
        self._changed = threading.Condition()  # guards what follows
        self._pending: list[SingleAgentEpisode] = []
        self._pending_steps = 0
        self._state_number = 0  # how often weights were set
        self._stopped = False
        self.make_module()
        self.host = self.config.env_config.get("host", "localhost")
        port = int(self.config.env_config.get("port", DEFAULT_PORT))
        self._server: socket.socket = socket.create_server(
            (self.host, port + self.worker_index if port else 0), backlog=1
        )
        self.port: int = self._server.getsockname()[1]
        self._server.settimeout(_POLL_S)
        self._listener = threading.Thread(target=self._listen, name=f"rllink-{self.port}", daemon=True)
        self._listener.start()

    # ------------------------------------------------------------ as every runner

    def make_env(self) -> None:
        """There is no environment here."""

    def make_module(self) -> None:
        """Makes the module, which only holds weights."""
        self.module = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True).build()

    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        """The configuration's spaces.

        Raises:
            ValueError: it has none.
        """
        spaces = (self.config.observation_space, self.config.action_space)
        if None in spaces:
            raise ValueError(
                "An external environment cannot be asked for its spaces: give them to "
                "config.environment(observation_space=..., action_space=...)"
            )
        return {INPUT_ENV_SPACES: spaces, INPUT_ENV_SINGLE_SPACES: spaces, DEFAULT_MODULE_ID: spaces}

    def assert_healthy(self) -> None:
        """Checks that it listens.

        Raises:
            AssertionError: it does not.
        """
        if not self._listener.is_alive():
            raise AssertionError(
                f"Environment runner {self.worker_index} does not listen at port {self.port} any more"
            )

    def sample(self, **kwargs: Any) -> list[SingleAgentEpisode]:
        """Waits for episodes, at most `config.sample_timeout_s`; how many come is the client's choice.

        Returns:
            All that came since the last call; none if there were none within the timeout.
        """
        began = time.perf_counter()
        episodes = self._take(self.config.sample_timeout_s)
        self._log(episodes)
        self.metrics.log_value(names.SAMPLE_TIMER, time.perf_counter() - began)
        return episodes

    def collect(
        self, *, deadline_s: float | None = None, reduce_metrics: bool = True, **kwargs: Any
    ) -> Collected:
        """As `sample`, with the steps as a rollout.

        Args:
            deadline_s: seconds to wait, instead of `config.sample_timeout_s`.
            reduce_metrics: False leaves "metrics" empty: they stay in the runner until `get_metrics`.
            kwargs: of other runners; the client chooses how much it samples.
        """
        began = time.perf_counter()
        episodes = self._take(self.config.sample_timeout_s if deadline_s is None else deadline_s)
        self._log(episodes)
        self.metrics.log_value(names.SAMPLE_TIMER, time.perf_counter() - began)
        rollouts = {DEFAULT_MODULE_ID: to_rollout(episodes)} if any(map(len, episodes)) else {}
        steps = sum(map(len, episodes))
        metrics = self.get_metrics() if reduce_metrics else {}
        return Collected(rollouts, steps, steps, metrics, self._weights_seq)

    def forget_episodes(self) -> None:
        """Episodes are the client's: there is nothing to forget."""

    def _take(self, timeout_s: float | None) -> list[SingleAgentEpisode]:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._stopped, timeout_s)
            episodes, self._pending, self._pending_steps = self._pending, [], 0
            self._changed.notify_all()
        return episodes

    def _log(self, episodes: list[SingleAgentEpisode]) -> None:
        for episode in episodes:
            length, total, seconds = self._reports.pop(episode.id_, (0, 0.0, 0.0))
            length, total = length + len(episode), total + episode.get_return()
            seconds += episode.get_duration_s()
            if not episode.is_done:
                self._reports[episode.id_] = (length, total, seconds)
                continue
            agent = DEFAULT_AGENT_ID
            self._counted.finished(
                FinishedEpisode(length, seconds, {agent: total}, {agent: length}, {agent: DEFAULT_MODULE_ID})
            )
        steps = sum(map(len, episodes))
        self._counted.sampled(steps, {DEFAULT_MODULE_ID: {DEFAULT_AGENT_ID: steps}})
        self.num_env_steps_sampled_lifetime += steps * (self.config.num_env_runners or 1)

    def get_metrics(self) -> dict[str, Any]:
        """The metrics since the last call, for `MetricsLogger.aggregate`."""
        self.metrics.log_value(names.WEIGHTS_SEQ_NO, self._weights_seq, window=1)
        self._counted.flush()
        return self.metrics.reduce()

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """By component: "rl_module", "weights_seq_no" and "num_env_steps_sampled_lifetime"."""
        return {
            COMPONENT_RL_MODULE: self.module.get_state(**kwargs),
            names.WEIGHTS_SEQ_NO: self._weights_seq,
            names.NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled_lifetime,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` gives; a client that waits for new weights gets them.

        Weights whose "weights_seq_no" is not 0 and not newer than the runner's are left aside.
        """
        with self._changed:
            weights = state.get(COMPONENT_RL_MODULE)
            if weights is not None:
                if isinstance(weights, runtime.ObjectRef):
                    weights = runtime.get(weights)
                number = state.get(names.WEIGHTS_SEQ_NO, 0)
                if number == 0 or number > self._weights_seq:
                    self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))
                    self._weights_seq = number or self._weights_seq
                self._state_number += 1
                self._changed.notify_all()
            lifetime = names.NUM_ENV_STEPS_SAMPLED_LIFETIME
            self.num_env_steps_sampled_lifetime = state.get(lifetime, self.num_env_steps_sampled_lifetime)

    def stop(self) -> None:
        """Closes the sockets and ends the listener."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._listener.join(_MESSAGE_TIMEOUT_S)
        self._server.close()

    # ------------------------------------------------------------ the listener's thread

    def _listen(self) -> None:
        while not self._stopped:
            try:
                client, address = self._server.accept()
            except TimeoutError:
                continue
            except OSError:
                logger.exception("Runner %d cannot accept clients at port %d", self.worker_index, self.port)
                return
            client.settimeout(_MESSAGE_TIMEOUT_S)
            logger.info("A client at %s is connected to port %d", address, self.port)
            with client:
                try:
                    self._serve(client)
                except (ConnectionError, TimeoutError) as error:
                    logger.info("The client at %s is gone: %s", address, error)
                except Exception:
                    logger.exception("The client at %s sent what cannot be used; it is disconnected", address)

    def _serve(self, client: socket.socket) -> None:
        answers: dict[RLlink, Callable[[], dict[str, Any]]] = {
            RLlink.PING: lambda: {"type": RLlink.PONG.name},
            RLlink.GET_STATE: self._state_message,
            RLlink.GET_CONFIG: lambda: {
                "type": RLlink.SET_CONFIG.name,
                "config": cloudpickle.dumps(self.config),
            },
        }
        while not self._stopped:
            # The client may play for as long as it wants; only a message that has begun has a deadline.
            if not select.select([client], [], [], _POLL_S)[0]:
                continue
            kind, body = get_rllink_message(client, _MESSAGE_TIMEOUT_S)
            if kind in answers:
                send_rllink_message(client, answers[kind]())
            elif kind in (RLlink.EPISODES, RLlink.EPISODES_AND_GET_STATE):
                number = self._put(
                    [SingleAgentEpisode.from_state(state).to_numpy() for state in body["episodes"]]
                )
                if kind is RLlink.EPISODES_AND_GET_STATE and self._wait_for_state(number):
                    send_rllink_message(client, self._state_message())
            else:
                raise ConnectionError(f"it sent {kind}, which is an answer")

    def _put(self, episodes: list[SingleAgentEpisode]) -> int:
        """Hands the episodes over; returns how often weights had been set until then."""
        self._wait_for(lambda: self._pending_steps < _MOST_PENDING_STEPS)
        with self._changed:
            self._pending += episodes
            self._pending_steps += sum(map(len, episodes))
            self._changed.notify_all()
            return self._state_number

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        """Waits without a deadline: the algorithm samples and updates when it wants. False if the runner stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or condition())
            return not self._stopped

    def _wait_for_state(self, number: int) -> bool:
        """Waits until weights are set for the next time after the `number`th."""
        return self._wait_for(lambda: self._state_number > number)

    def _state_message(self) -> dict[str, Any]:
        with self._changed:
            return {"type": RLlink.SET_STATE.name, "state": self.get_state(inference_only=True)}
