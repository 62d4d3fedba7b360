"""Ends and finds the machines of a cluster; only the provider's listing proves anything."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from autoscaler.provider import Machine, MachineState, NotFound, ProviderError, Transient
from clusterctl.errors import NotFound as Gone
from clusterctl.errors import TimedOut, from_provider
from clusterctl.home import ClusterRecord
from clusterctl.providers.protocol import OperatorProvider

_DEADLINE_S = 300.0
_ASK_AGAIN_S = 30.0
_BOOT_DEADLINE_S = 300.0
_PATIENCE_S = 120.0
_POLL_S = 0.1
_SILENCE_S = 5.0
"""Machines that cannot be reached while no other is left are asked for so long."""
_MOST_POLL_S = 2.0
_BOOT_POLL_S = 1.0
T = TypeVar("T")
_UP_AGAIN = "Run `clusterctl up` again; the provider's own tools tell what happened to it."


def existing(provider: OperatorProvider, patience_s: float = 0.0) -> list[Machine]:
    """Every machine of the cluster that still exists in any state. A platform that hiccups is asked for so long."""
    try:
        listed = patiently(provider.list, patience_s)
        return [machine for machine in listed if machine.state is not MachineState.GONE]
    except ProviderError as error:
        raise from_provider(error) from error


def lives(provider: OperatorProvider, record: ClusterRecord | None, name: str) -> list[str]:
    """The ids of all clusters of that name that are ours: the remembered one, and those that only tags tell of.

    A record of a former version has an owner's id that other people may have, too. Nothing is found by that.
    """
    known = [record.cluster_id] if record else []
    settings = record.provider_settings if record else {}
    if "owner" in settings and "owner_name" not in settings:
        return known
    try:
        return known + [other for other in provider.clusters(name) if other not in known]
    except ProviderError as error:
        raise from_provider(error) from error


def listed_with(provider: OperatorProvider, machine_id: str) -> list[Machine]:
    """Like `existing`; but a machine that is known and missing is looked for as long as listings may lag behind, unless
    the platform says that it is gone."""
    deadline = time.monotonic() + provider.capabilities.listing_lag_s
    while True:
        asked_s = time.monotonic()  # an answer may come late, and be no younger than its question
        try:
            listed = provider.list()
        except ProviderError as error:
            raise from_provider(error) from error
        is_told_of = not machine_id or any(machine.id == machine_id for machine in listed)
        if is_told_of or asked_s >= deadline:
            return [machine for machine in listed if machine.state is not MachineState.GONE]
        time.sleep(min(_BOOT_POLL_S, max(0.0, deadline - time.monotonic())))


def head_of(machines: Sequence[Machine]) -> Machine | None:
    """The head's machine; the youngest when an accident left several."""
    heads = [machine for machine in machines if machine.is_head]
    return max(heads, key=lambda machine: machine.launched_s, default=None)


def await_running(
    provider: OperatorProvider, machine_id: str, deadline_s: float = _BOOT_DEADLINE_S
) -> Machine:
    """The machine, when it runs and has an address. What a listing says is believed after as long as those of the
    platform may lag.

    Raises:
        NotFound: it is gone, or ends.
        TimedOut: it does not run by the deadline.
    """
    begun = time.monotonic()
    while True:
        waited_s = time.monotonic() - begun  # before the platform was asked: an answer may come late
        listed = existing(provider, _PATIENCE_S)
        found = next((machine for machine in listed if machine.id == machine_id), None)
        if found is not None and found.state is MachineState.RUNNING and found.address:
            return found
        if waited_s >= provider.capabilities.listing_lag_s:
            if found is None:
                raise Gone(f"machine {machine_id} has vanished", _UP_AGAIN)
            if found.state in (MachineState.STOPPING, MachineState.STOPPED):
                raise Gone(f"machine {machine_id} is {found.state.value} instead of running", _UP_AGAIN)
        if waited_s >= deadline_s:
            raise TimedOut(f"machine {machine_id} does not run after {deadline_s:g} s", _UP_AGAIN)
        time.sleep(_POLL_S if waited_s < 1 else _BOOT_POLL_S)


def _unreached(silent: Sequence[Machine], have_others_ended: bool) -> TimedOut:
    lines = "\n  ".join(f"{machine.id}: {machine.unreachable}" for machine in silent)
    what = ", and all others have ended" if have_others_ended else ""
    runs = "goes on" if any(machine.is_head for machine in silent) else "ends when it finds no head"
    return TimedOut(
        f"these machines cannot be entered{what}:\n  {lines}",
        f"What runs there {runs}, and the cluster's files stay. Run `clusterctl down` again when they can be entered, "
        "or with --abandon if they never will be.",
    )


def patiently(call: Callable[[], T], patience_s: float = _PATIENCE_S) -> T:
    """The call's result; it is repeated while the platform has a hiccup or wants fewer calls.

    Raises:
        ProviderError: it refuses, or has hiccups for too long.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return call()
        except Transient as error:
            if time.monotonic() + error.retry_after_s >= deadline:
                raise
            time.sleep(error.retry_after_s)


def end_all(
    provider: OperatorProvider,
    only: Collection[str] | None = None,
    on_end: Callable[[Sequence[Machine]], None] = lambda machines: None,
    deadline_s: float = _DEADLINE_S,
    settles: bool = False,
) -> int:
    """Terminates until the listing shows none left, stopped ones included; returns how many there were.

    What an autoscaler that still runs launches meanwhile is ended in the next round, as its head is by then. Clouds
    take a minute or so to end a machine, and count calls: they are asked ever more seldom.

    Args:
        settles: machines may just have been made that are not listed yet: looks again until they must be.

    Raises:
        TimedOut: some are still listed at the deadline, or cannot be reached while all others have ended; the message
            names them.
    """
    begun = time.monotonic()
    deadline = begun + deadline_s
    settled = begun + (provider.capabilities.listing_lag_s if settles else 0.0)
    seen: set[str] = set()
    silent_since = math.inf
    asked: dict[str, float] = {}  # accepted then
    pause_s = _POLL_S
    while True:
        asked_s = time.monotonic()  # an answer may come late, and be no younger than its question
        listed = existing(provider, _PATIENCE_S)
        found = [machine for machine in listed if only is None or machine.id in only]
        if not found or any(not machine.unreachable for machine in found):
            silent_since = math.inf
        elif time.monotonic() - silent_since >= _SILENCE_S:
            raise _unreached(found, have_others_ended=len(seen) > len(found))
        else:
            silent_since = min(silent_since, time.monotonic())
        new = [machine for machine in found if machine.id not in seen]
        if not found:
            if asked_s >= settled:
                return len(seen)
            time.sleep(_POLL_S)
            continue
        if new:
            on_end(new)
        seen.update(machine.id for machine in found)
        now = time.monotonic()
        due = [machine.id for machine in found if now - asked.get(machine.id, -_ASK_AGAIN_S) >= _ASK_AGAIN_S]
        try:
            results = provider.terminate(due) if due else {}
        except Transient:
            results = {}
        except ProviderError as error:
            raise from_provider(error) from error
        for error_ in results.values():
            if error_ is not None and not isinstance(error_, NotFound | Transient):
                raise from_provider(error_)
        if time.monotonic() >= deadline:
            names = ", ".join(machine.id for machine in found)
            raise TimedOut(
                f"after {deadline_s:g} s these machines are still listed: {names}",
                "Run `clusterctl down` again; if they stay, end them with the provider's own tools.",
            )
        asked.update({machine_id: now for machine_id, error in results.items() if error is None})
        if any(result is not None for result in results.values()) or not results:
            time.sleep(pause_s)
            pause_s = _POLL_S if due else min(pause_s * 1.5, _MOST_POLL_S)
