"""`down` and `stop`: the end of a cluster, for good or until the next `up`. Neither needs the head to answer; only the
end of the workers alone does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from autoscaler.provider import SPOT, Machine, MachineState, ProviderError, ShellError, Transient
from clusterctl import home as homes
from clusterctl.errors import CliError, TimedOut, Unreachable, from_provider
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers import registry
from clusterctl.providers.ownership import ForeignCluster
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.definition import ClusterSpec

from . import machines, reach
from .runtimes.chosen import runtime_of

_ENTRY_S = 30.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What `down` did. `abandoned`: what is left, and why."""

    machines: int
    abandoned: tuple[str, ...] = ()


def cluster_providers(
    home: Home, name: str, spec: ClusterSpec, record: ClusterRecord | None
) -> list[OperatorProvider]:
    """One provider per life of the cluster that has, or may have, machines: the remembered one and those
    that only their tags tell of. Where there is none, the one of the name, for what was made around machines."""
    settings = record.provider_settings if record else home.provider_settings(name)
    probe = registry.make(spec, record.cluster_id if record else name, settings)
    ids = machines.lives(probe, record, name)
    return [registry.make(spec, cluster_id, settings) for cluster_id in ids] or [probe]


def foreign(home: Home, name: str, spec: ClusterSpec) -> Sequence[ForeignCluster]:
    """The clusters of that name that belong to other owners."""
    try:
        return registry.make(spec, name, home.provider_settings(name)).foreign(name)
    except ProviderError as error:
        raise from_provider(error) from error


def adopted(home: Home, spec: ClusterSpec, cluster: ForeignCluster) -> OperatorProvider:
    """The provider of another owner's cluster, to end it as its owner would."""
    settings = {**home.adopted_settings(cluster.cluster_id), **cluster.owner.settings()}
    return registry.make(spec, cluster.cluster_id, settings)


def to_end(remembered: ClusterSpec, given: ClusterSpec | None) -> ClusterSpec:
    """The spec by which a cluster is ended: the one that it was made by, but for the way into its machines, which may
    be another by now (a key was moved). Pure."""
    return msgspec.structs.replace(remembered, auth=given.auth) if given else remembered


def listed(found: Sequence[OperatorProvider]) -> list[Machine]:
    """All machines of the cluster."""
    return [machine for provider in found for machine in machines.existing(provider)]


def down(
    home: Home,
    name: str,
    found: Sequence[OperatorProvider],
    progress: Callable[[str], None],
    abandon: bool = False,
    forgets: bool = True,
) -> Ended:
    """Terminates until nothing is listed, removes what was prepared, forgets the cluster.

    Args:
        abandon: forgets the cluster also if machines cannot be reached, with whatever is left on them.
        forgets: what is remembered under that name is this cluster.

    Raises:
        CliError: not all could be ended; all that could was, and the cluster is remembered.
    """

    def announce(ending: Sequence[Machine]) -> None:
        progress(f"ending {len(ending)} machine{'s' if len(ending) > 1 else ''}")

    ended = 0
    failures: list[CliError] = []
    for provider in found:
        try:
            # Its head may have asked for machines just now that are not listed yet.
            ended += machines.end_all(provider, on_end=announce, settles=True)
        except TimedOut as error:
            failures.append(error)
        try:
            provider.cleanup()
        except Transient as error:
            failures.append(
                CliError(str(error), "Run `clusterctl down` again, or with --abandon to leave it so.")
            )
        except ProviderError as error:
            failures.append(from_provider(error))
    if failures and not abandon:
        first = failures[0]
        raise type(first)("\n".join(dict.fromkeys(failure.message for failure in failures)), first.hint)
    if forgets:
        home.forget(name)
    return Ended(ended, tuple(failure.message for failure in failures))


def workers_to_end(listed: Sequence[Machine], keep: Mapping[str, int]) -> list[str]:
    """The workers but for so many of each type, the longest-lived. Pure."""
    left = dict(keep)
    ending = []
    for machine in sorted(listed, key=lambda machine: machine.launched_s):
        if machine.is_head:
            continue
        if left.get(machine.node_type, 0) > 0:
            left[machine.node_type] -= 1
        else:
            ending.append(machine.id)
    return ending


def without_minimum(spec: ClusterSpec) -> ClusterSpec:
    """The spec with no workers that are always there. Pure."""
    kinds = {
        name: msgspec.structs.replace(kind, min_workers=0) for name, kind in spec.available_node_types.items()
    }
    return msgspec.structs.replace(spec, available_node_types=kinds)


def workers_of(record: ClusterRecord, keeps_minimum: bool) -> list[str]:
    """The machines that `end_workers` ends.

    Raises:
        Unreachable: the cluster is stopped, and has none.
    """
    if record.state == homes.STOPPED:
        raise Unreachable(
            f"cluster '{record.name}' is stopped, and has no workers", f"Start it with: {record.up_command}"
        )
    kinds = record.spec.available_node_types if keeps_minimum else {}
    keep = {name: kind.min_workers for name, kind in kinds.items()}
    return workers_to_end(machines.existing(_provider(record)), keep)


def end_workers(
    home: Home, record: ClusterRecord, keeps_minimum: bool, progress: Callable[[str], None]
) -> int:
    """Ends the workers and leaves the head; returns how many there were. Where min_workers are not kept, the head's
    autoscaler is told not to make them anew until the next `up`.

    Raises:
        CliError: the head does not answer, or a machine does not end.
    """
    provider = _provider(record)
    ending = workers_of(record, keeps_minimum)
    if not keeps_minimum:
        less = without_minimum(record.spec)
        if less.runtime.autoscales and less != record.spec:
            reach.api(home, record, provider).put("/api/autoscaler/config", msgspec.json.encode(less))
            record.spec, record.spec_hash = less, homes.spec_hash(less)
            home.write(record)
    if ending:
        progress(f"ending {len(ending)} worker{'s' if len(ending) > 1 else ''}")
        machines.end_all(provider, only=set(ending))
    return len(ending)


def stop(home: Home, record: ClusterRecord, progress: Callable[[str], None]) -> None:
    """Stops the head's machine and keeps it with its state; gives the workers back, which hold nothing that
    the next `up` does not make again."""
    provider = _provider(record)
    if not provider.capabilities.stop_start:
        raise CliError(
            "machines of this provider cannot be stopped", "End the cluster with `clusterctl down`."
        )
    found = machines.existing(provider)
    head = machines.head_of(found)
    if head is None:
        raise CliError("the head's machine is gone", "Run `clusterctl down`, then `clusterctl up`.")
    if head.market == SPOT:
        raise CliError(
            f"the head's machine {head.id} is a spot machine, which clouds end and do not stop",
            "End the cluster with `clusterctl down`.",
        )
    _remove_boot_entry(provider, record, head)
    try:
        progress("stopping the head")
        provider.stop([head.id])  # first, so that no autoscaler replaces the workers
    except ProviderError as error:
        raise from_provider(error) from error
    workers = {machine.id for machine in machines.existing(provider) if machine.id != head.id}
    if workers:
        progress(f"giving back {len(workers)} worker{'s' if len(workers) > 1 else ''}")
        machines.end_all(provider, only=workers, settles=True)
    record.state = homes.STOPPED
    home.write(record)


def _remove_boot_entry(provider: OperatorProvider, record: ClusterRecord, head: Machine) -> None:
    """So that the head stays away also if somebody else starts its machine. Where the machine cannot be entered the
    entry stays: `up` ends what it starts."""
    command = runtime_of(record.spec).removal_of_boot_entry(record.cluster_id)
    if head.state is not MachineState.RUNNING or not command:
        return
    with contextlib.suppress(ShellError, ProviderError, OSError):
        shell = provider.shell(head)
        try:
            shell.run(command, timeout_s=_ENTRY_S)
        finally:
            shell.close()


def _provider(record: ClusterRecord) -> OperatorProvider:
    return registry.make(record.spec, record.cluster_id, record.provider_settings)
