"""What results are filled with besides metrics."""

from __future__ import annotations

import os
import resource
import socket
import time
from datetime import datetime
from typing import Any

from runtime.rllib._core.types import Config
from runtime.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    FAULT_TOLERANCE_STATS,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES_LIFETIME,
)
from runtime.util import get_node_ip_address

OUTSTANDING = "actor_manager_num_outstanding_async_reqs"


def state_of(group: Any) -> dict[str, int]:
    """What results tell of a group of runners itself; None: there is no group."""
    return {
        "num_healthy_workers": 0 if group is None else group.num_healthy_remote_workers(),
        "num_remote_worker_restarts": 0 if group is None else group.num_remote_worker_restarts(),
        "num_env_runners_dropped_lifetime": 0 if group is None else group.num_env_runners_dropped_lifetime,
        OUTSTANDING: 0 if group is None else group.num_in_flight_async_reqs(),
    }


class ResultFiller:
    """Adds to results what no logger knows.

    Attributes:
        total_s: seconds of training so far, over all restores.
    """

    def __init__(self, config: Config) -> None:
        self.total_s = 0.0
        self._since_restore_s = 0.0
        self._iterations = 0
        self._settings = config.to_dict()
        self._logs_usage = config.log_sys_usage
        self._cpu = _cpu_seconds(), time.perf_counter()
        self._node = {"pid": os.getpid(), "hostname": socket.gethostname(), "node_ip": get_node_ip_address()}

    def complete(self, results: dict[str, Any], algorithm: Any) -> None:
        """Adds what all results have: totals, faults, the settings."""
        sampled = results.get(ENV_RUNNER_RESULTS, {})
        for name in (NUM_ENV_STEPS_SAMPLED_LIFETIME, NUM_AGENT_STEPS_SAMPLED_LIFETIME, NUM_EPISODES_LIFETIME):
            if name in sampled and not isinstance(sampled[name], dict):
                results[name] = sampled[name]
        group = algorithm.env_runner_group
        faults = results.setdefault(FAULT_TOLERANCE_STATS, {})
        state = state_of(group)
        results.setdefault("env_runner_group", {})[OUTSTANDING] = state.pop(OUTSTANDING)
        faults.update(state)
        results["config"] = self._settings
        if self._logs_usage:
            results["perf"] = self._usage()

    def filled(self, results: dict[str, Any], iteration: int, took_s: float) -> dict[str, Any]:
        """The results with what an experiment adds otherwise: iteration, times, host."""
        self.total_s += took_s
        self._since_restore_s += took_s
        self._iterations += 1
        now = datetime.now()
        return {
            "training_iteration": iteration,
            "trial_id": "default",
            "done": False,
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(now.timestamp()),
            "time_this_iter_s": took_s,
            "time_total_s": self.total_s,
            "time_since_restore": self._since_restore_s,
            "iterations_since_restore": self._iterations,
            **self._node,
            **results,
        }

    def _usage(self) -> dict[str, float]:
        cpu, now = _cpu_seconds(), time.perf_counter()
        (cpu_before, before), self._cpu = self._cpu, (cpu, now)
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {
            "cpu_util_percent": 100 * (cpu - cpu_before) / max(now - before, 1e-9),
            "ram_util_percent": 100 * peak_kib * 1024 / memory,
        }


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system
