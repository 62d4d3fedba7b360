"""The client's side of `rllink`, for external environments in Python."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from typing import Any, Self

import cloudpickle

from ..single_agent_episode import SingleAgentEpisode
from .rllink import RLlink, get_rllink_message, send_rllink_message

_RETRY_S = 0.05


class RLlinkClient:
    """A connection to an `EnvRunnerServerForExternalInference`. Not thread-safe."""

    def __init__(self, host: str = "localhost", port: int = 5555, *, timeout_s: float = 60.0) -> None:
        """Connects, and retries until the server listens.

        Args:
            host: of the server.
            port: the configured port plus the runner's worker index.
            timeout_s: for connecting and for each answer.

        Raises:
            ConnectionError: nothing listens there within the timeout.
            TimeoutError: the runner does not answer: it serves one client at a time.
        """
        self.timeout_s = timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._socket = socket.create_connection(
                    (host, port), timeout=max(0.01, deadline - time.monotonic())
                )
                break
            except OSError as error:
                if time.monotonic() + _RETRY_S >= deadline:
                    raise ConnectionError(
                        f"No environment runner listens at {host}:{port}: {error}"
                    ) from error
                time.sleep(_RETRY_S)
        self._socket.settimeout(timeout_s)
        try:
            self._ask({"type": RLlink.PING.name}, RLlink.PONG)
        except BaseException:
            self._socket.close()
            raise

    def get_config(self) -> Any:
        """The server's `AlgorithmConfig`. It is unpickled, so connect to servers that you trust only."""
        return cloudpickle.loads(self._ask({"type": RLlink.GET_CONFIG.name}, RLlink.SET_CONFIG)["config"])

    def get_state(self) -> dict[str, Any]:
        """The state of the runner: "rl_module" (the weights) and "weights_seq_no"."""
        state: dict[str, Any] = self._ask({"type": RLlink.GET_STATE.name}, RLlink.SET_STATE)["state"]
        return state

    def send_episodes(self, episodes: Iterable[SingleAgentEpisode]) -> None:
        """Sends episodes, or chunks of them, and does not wait."""
        send_rllink_message(self._socket, {"type": RLlink.EPISODES.name, "episodes": _states(episodes)})

    def send_episodes_and_get_state(self, episodes: Iterable[SingleAgentEpisode]) -> dict[str, Any]:
        """Sends episodes and waits for the weights that an update with them gives (for on-policy algorithms).

        Raises:
            TimeoutError: there was no update within the timeout.
        """
        message = {"type": RLlink.EPISODES_AND_GET_STATE.name, "episodes": _states(episodes)}
        state: dict[str, Any] = self._ask(message, RLlink.SET_STATE)["state"]
        return state

    def _ask(self, message: dict[str, Any], answer: RLlink) -> dict[str, Any]:
        send_rllink_message(self._socket, message)
        got, body = get_rllink_message(self._socket, self.timeout_s)
        if got is not answer:
            raise ConnectionError(
                f"The environment runner answered {message['type']} with {got}, not {answer}"
            )
        return body

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _states(episodes: Iterable[SingleAgentEpisode]) -> list[dict[str, Any]]:
    """Their states without spaces, which the server knows."""
    states = []
    for episode in episodes:
        state = episode.get_state()
        state["_observation_space"] = state["_action_space"] = None
        for name in ("observations", "actions", "rewards", "infos"):
            state[name] = {**state[name], "space": None}
        for name, values in state["extra_model_outputs"].items():
            state["extra_model_outputs"][name] = {**values, "space": None}
        states.append(state)
    return states
