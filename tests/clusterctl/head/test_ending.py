"""How a head ends its cluster, and what it does when the platform does not let it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from autoscaler.provider import Auth, Capabilities, Machine, MachineState, MachineTags, ProviderError
from clusterctl.head import ending
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.startup import lease_guard

HEAD = Machine("h", MachineState.RUNNING, "head", {MachineTags.ROLE: MachineTags.HEAD})
WORKER = Machine("w", MachineState.RUNNING, "w", {})


class Platform:
    """Machines that end at once, and whatever was asked."""

    def __init__(self, *machines: Machine, able: Capabilities, refusals: int = 0) -> None:
        self.machines = list(machines)
        self.capabilities = able
        self.refusals = refusals
        self.asked: list[str] = []

    def list(self) -> Sequence[Machine]:
        return list(self.machines)

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        return dict.fromkeys(ids, self._end("end", ids))

    def stop(self, ids: Sequence[str]) -> None:
        refused = self._end("stop", ids)
        if refused:
            raise refused

    def _end(self, what: str, ids: Sequence[str]) -> ProviderError | None:
        self.asked.append(f"{what} {' '.join(ids)}")
        if self.refusals:
            self.refusals -= 1
            return Auth("you may not")
        self.machines = [machine for machine in self.machines if machine.id not in ids]
        return None


@pytest.fixture(autouse=True)
def shut_down(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whether the machine shut itself down."""
    calls: list[str] = []
    monkeypatch.setattr(ending, "_AGAIN_S", 0.0)
    monkeypatch.setattr(lease_guard, "shut_down", lambda: calls.append("shut down"))
    return calls


def end(platform: Platform, down: bool) -> list[str]:
    provider = cast(OperatorProvider, platform)
    ending.end_workers(provider)
    ending.end_own(provider, down)
    return platform.asked


CLOUD = Capabilities(stop_start=True, shutdown_ends=True)


def test_the_workers_end_first_and_the_head_is_kept() -> None:
    assert end(Platform(HEAD, WORKER, able=CLOUD), down=False) == ["end w", "stop h"]


def test_for_good_the_head_ends_too() -> None:
    assert end(Platform(HEAD, WORKER, able=CLOUD), down=True) == ["end w", "end h"]


def test_a_machine_that_a_listing_leaves_out_is_ended_too() -> None:
    platform = Platform(HEAD, able=CLOUD)
    ending.end_workers(cast(OperatorProvider, platform), known={"slow"})
    assert platform.asked == ["end slow"]


def test_a_refusal_that_passes_costs_another_attempt(shut_down: list[str]) -> None:
    assert end(Platform(HEAD, able=CLOUD, refusals=2), down=False) == ["stop h"] * 3
    assert shut_down == []


def test_a_head_that_may_not_end_its_machine_shuts_it_down(shut_down: list[str]) -> None:
    end(Platform(HEAD, WORKER, able=CLOUD, refusals=100), down=True)
    assert shut_down == ["shut down"]


def test_where_a_shutdown_ends_no_costs_there_is_none(shut_down: list[str]) -> None:
    end(Platform(HEAD, able=Capabilities(stop_start=True), refusals=100), down=False)
    assert shut_down == []


def test_a_fault_that_nobody_foresaw_costs_an_attempt_like_a_refusal(
    monkeypatch: pytest.MonkeyPatch, shut_down: list[str]
) -> None:
    platform = Platform(HEAD, WORKER, able=CLOUD)
    answers: list[BaseException] = [OSError("no space left on device"), ValueError("what is this?")]
    well = platform.list

    def listing() -> Sequence[Machine]:
        if answers:
            raise answers.pop()
        return well()

    monkeypatch.setattr(platform, "list", listing)
    assert end(platform, down=True) == ["end w", "end h"]
    answers.extend(OSError("no space left on device") for _ in range(100))
    ending.end_own(cast(OperatorProvider, platform), down=True)
    assert shut_down == ["shut down"]
