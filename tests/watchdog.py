"""What happens when a test exceeds its time: the stacks of every process of the run, and the end of them all."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

from runtime._system.stacks import collect
from tests.leaks import kill_strays, tagged_processes

_HARD_LIMIT_S = 600.0
"""A test that even the timeout does not end, in its fixtures or out of Python's reach, ends the whole run."""


class Watchdog:
    """A plugin. `pytest-timeout` fails the test; this says where everything else was, and clears it away."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._broken: dict[object, str] = {}

    def has_bitten(self, module: object) -> bool:
        """Whether a test of the module exceeded its time."""
        return module in self._broken

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        asked_s: float = item.config.getoption("timeout", None) or 0.0  # tests may be asked to run for long
        faulthandler.dump_traceback_later(_HARD_LIMIT_S + asked_s, exit=True, file=_terminal)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        culprit = self._broken.get(getattr(item, "module", None))
        if culprit is not None:
            pytest.skip(f"{culprit} exceeded its time, and the processes of this module were killed")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
            report.sections.append(("stacks of every process of the run", self._stacks()))
            kill_strays(self._run_id)  # what hangs would make the fixtures hang too
            self._broken[getattr(item, "module", None)] = item.name
        return report

    def _stacks(self) -> str:
        processes = tagged_processes(self._run_id)
        found = {stacks.pid: stacks for stacks in collect({*processes, os.getpid()})}
        texts = [f"=== {one.role} {one.pid}: {one.command}\n{one.text}" for one in found.values()]
        others = [f"{pid}: {line}" for pid, line in processes.items() if pid not in found]
        if others:
            texts.append("=== processes without stacks\n" + "\n".join(others))
        return "\n".join(texts)


_terminal = os.dup(2)  # before pytest captures it
