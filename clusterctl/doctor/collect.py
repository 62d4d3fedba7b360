"""Gathers the facts: what is remembered here, what the provider lists, what the machines and the head say."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import clusterctl
from autoscaler.provider import (
    Machine,
    MachineState,
    Problem,
    ProviderError,
    ShellAuthFailed,
    ShellError,
    ShellRefused,
    ShellTimedOut,
)
from clusterctl.errors import CliError, NotFound, TimedOut, Unreachable
from clusterctl.home import ClusterRecord, Home, spec_hash
from clusterctl.launcher import look, node_types, reach
from clusterctl.launcher.containers import shell_of
from clusterctl.launcher.machines import head_of, lives
from clusterctl.launcher.plan import Health
from clusterctl.providers import registry
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.providers.ssh.hosts import located
from clusterctl.shell.connections import HostKeyChanged
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import load_file
from clusterctl.spec.overrides import renamed

from . import probe
from .facts import Api, Entry, Facts, Failure, Seen

_PROBE_S = 20.0
_ASK_S = 5.0
_SAYS = {Health.SILENT: Api.NOBODY, Health.DENIED: Api.DENIED}
_FAILURES = 3
_LAST_LINES = 6


def collect(home: Home, name: str, spec: ClusterSpec, file: str, record: ClusterRecord | None) -> Facts:
    """Everything about one cluster. Changes nothing.

    Args:
        spec: by which its provider is made: what is up, or else what the YAML says.
        record: what is remembered, if it can be read.
    """
    settings = record.provider_settings if record else home.provider_settings(name)
    provider = registry.make(spec, record.cluster_id if record else name, settings)
    found: dict[str, Any] = {
        "name": name,
        "up": record.up_command if record else f"clusterctl up {shlex.quote(file)}",
        "down": f"clusterctl down {name if record else shlex.quote(file)}",
        "own_version": clusterctl.__version__,
        "busy": _busy(home, name),
        "has_our_head": spec.runtime.has_our_head,
        "setup_log": _tail(os.path.join(home.folder(name), "logs", "head-setup.log")),
    }
    if record is not None:
        found |= _remembered(home, record, file)
    try:
        machines = [m for m in provider.list() if m.state is not MachineState.GONE] if record else []
        own = record.cluster_id if record else ""
        others = [other for other in lives(provider, record, name) if other != own]
        strangers = [
            machine.id
            for other in others
            for machine in registry.make(spec, other, settings).list()
            if machine.state is not MachineState.GONE
        ]
    except (CliError, ProviderError, ShellError, OSError) as error:
        return Facts(**found, listing_problem=str(error))
    seen = _look(provider, spec, machines, record.control_address if record else "")
    found |= {"machines": machines, "strangers": strangers, "seen": seen}
    if not machines:
        found["can_refuse"] = _check(provider, spec)
    if record is not None and machines:
        found |= _ask_head(home, record, provider, head_of(machines), seen)
    return Facts(**found)


def _remembered(home: Home, record: ClusterRecord, file: str) -> dict[str, Any]:
    out: dict[str, Any] = {"state": record.state, "stops_itself": record.stops_itself}
    try:
        wanted = renamed(located(load_file(file)), record.name if record.is_renamed else None)
        out["spec_changed"] = spec_hash(wanted) != record.spec_hash
    except CliError as error:
        out["spec_problem"] = error.message
    secret_file = home.secret_file(record.name)
    out["secret_file"] = secret_file
    try:
        if os.stat(secret_file).st_mode & 0o077:
            out["secret"] = f"others may read the cluster's secret {secret_file}"
    except OSError as error:
        out["secret"] = f"the cluster's secret {secret_file} cannot be read: {error.strerror}"
    return out


def _busy(home: Home, name: str) -> str:
    holder = home.changed_by(name)
    return holder and f"cluster '{name}' is being changed by {holder}"


def _check(provider: OperatorProvider, spec: ClusterSpec) -> Sequence[Problem]:
    try:
        return provider.check(node_types.node_types(spec, provider.default_resources()))
    except ProviderError as error:
        return [Problem(str(error), "clusterctl check FILE asks again.")]


# ------------------------------------------------------------ machines


def _look(
    provider: OperatorProvider, spec: ClusterSpec, machines: Sequence[Machine], control_address: str
) -> dict[str, Seen]:
    running = [machine for machine in machines if machine.state is MachineState.RUNNING]
    if not running:
        return {}
    pool = ThreadPoolExecutor(min(32, len(running)), thread_name_prefix="doctor")
    try:
        answers = pool.map(lambda machine: _look_at(provider, spec, machine, control_address), running)
        return {machine.id: seen for machine, seen in zip(running, answers, strict=True)}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no machine that does not answer


def _look_at(provider: OperatorProvider, spec: ClusterSpec, machine: Machine, control_address: str) -> Seen:
    try:
        shell = shell_of(spec, machine.node_type, machine.is_head, provider.shell(machine))
        try:
            before = time.time()
            printed = shell.run(probe.command(control_address, machine.is_head), timeout_s=_PROBE_S).output
            return probe.read(printed, (before + time.time()) / 2)
        finally:
            shell.close()
    except HostKeyChanged as error:
        return Seen(Entry.OTHER_KEY, str(error))
    except ShellRefused as error:
        return Seen(Entry.REFUSED, str(error))
    except ShellTimedOut as error:
        return Seen(Entry.SILENT, str(error))
    except ShellAuthFailed as error:
        return Seen(Entry.REJECTED, str(error))
    except (ShellError, ProviderError, OSError) as error:
        return Seen(Entry.FAILED, str(error))


# ------------------------------------------------------------ the head


def _ask_head(
    home: Home,
    record: ClusterRecord,
    provider: OperatorProvider,
    head: Machine | None,
    seen: Mapping[str, Seen],
) -> dict[str, Any]:
    out: dict[str, Any] = {"api_port": urlsplit(record.api_url).port or 0}
    can_be_entered = head is not None and head.id in seen and seen[head.id].entry is Entry.OPEN
    if head is None or not record.api_url or not can_be_entered or not record.spec.runtime.has_our_head:
        return out
    try:
        health, words = look.answer(home, record, provider)
        if health in _SAYS:
            return out | {"api": _SAYS[health], "api_words": words}
        api = reach.api(home, record, provider)
        version = api.get("/api/version", timeout_s=_ASK_S)
        status = api.get("/api/cluster_status", timeout_s=_ASK_S)
    except (Unreachable, NotFound):
        return out | {"api": Api.NOBODY}
    except TimedOut:
        return out | {"api": Api.SLOW}
    except CliError:
        return out | {"api": Api.NO_CONTROL}
    python = ".".join(str(version["python_version"]).split(".")[:2])
    failures = distinct((status.get("autoscaler") or {}).get("failures", []))[:_FAILURES]
    return out | {
        "api": Api.ANSWERS,
        "head_version": (version["version"], python),
        "status": status,
        "failures": [_failure(provider, record.spec, head, item) for item in failures],
    }


def distinct(failures: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest failure for each type, step and reason, in the order given: the newest first. Pure."""
    newest: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for item in failures:
        newest.setdefault((item["node_type"], item["step"], item["reason"]), item)
    return [*newest.values()]


def _failure(
    provider: OperatorProvider, spec: ClusterSpec, head: Machine, item: Mapping[str, Any]
) -> Failure:
    log: Sequence[str] = ()
    if item["setup_log"]:
        try:
            shown = shell_of(spec, head.node_type, True, provider.shell(head)).run(
                f"tail -n {_LAST_LINES} -- {shlex.quote(item['setup_log'])}", timeout_s=_PROBE_S
            )
            log = shown.output.splitlines() if shown.exit_status == 0 else ()
        except (ShellError, ProviderError):
            log = ()
    return Failure(
        item["instance_id"],
        item["node_type"],
        item["step"],
        item["reason"],
        has_log=bool(item["setup_log"]),
        log=tuple(log),
    )


def _tail(path: str) -> Sequence[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return tuple(line.rstrip("\n") for line in file.readlines()[-_LAST_LINES:])
    except OSError:
        return ()
