"""`down` and `stop`: the end of a cluster, for good or until the next `up`. Neither needs the head to
answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autoscaler.provider import Machine, ProviderError, Transient
from clusterctl import home as homes
from clusterctl import providers
from clusterctl.errors import CliError, TimedOut, from_provider
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers import OperatorProvider
from clusterctl.spec.definition import ClusterSpec

from . import machines


def cluster_providers(
    home: Home, name: str, spec: ClusterSpec, record: ClusterRecord | None
) -> list[OperatorProvider]:
    """One provider per life of the cluster that has, or may have, machines: the remembered one and those
    that only their tags tell of."""
    settings = record.provider_settings if record else home.provider_settings(name)
    ids = [record.cluster_id] if record else []
    probe = providers.make(spec, ids[0] if ids else name, settings)
    ids += [other for other in probe.clusters(name) if other not in ids]
    return [providers.make(spec, cluster_id, settings) for cluster_id in ids]


def listed(found: Sequence[OperatorProvider]) -> list[Machine]:
    """All machines of the cluster."""
    return [machine for provider in found for machine in machines.existing(provider)]


def down(
    home: Home,
    name: str,
    found: Sequence[OperatorProvider],
    progress: Callable[[str], None],
    abandon: bool = False,
) -> int:
    """Terminates until nothing is listed, removes what was prepared, forgets the cluster; returns how many
    machines there were.

    Args:
        abandon: forgets the cluster also if machines cannot be reached, with whatever is left on them.

    Raises:
        CliError: not all could be ended; all that could was, and the cluster is remembered.
    """

    def announce(ending: Sequence[Machine]) -> None:
        progress(f"ending {len(ending)} machine{'s' if len(ending) > 1 else ''}")

    ended = 0
    failures: list[CliError] = []
    for provider in found:
        try:
            ended += machines.end_all(provider, on_end=announce)
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
        raise failures[0]
    for failure in failures:
        progress(f"abandoned: {failure.message}")
    home.forget(name)
    return ended


def stop(home: Home, record: ClusterRecord, progress: Callable[[str], None]) -> None:
    """Stops the head's machine and keeps it with its state; gives the workers back, which hold nothing that
    the next `up` does not make again."""
    provider = providers.make(record.spec, record.cluster_id, record.provider_settings)
    if not provider.capabilities.stop_start:
        raise CliError(
            "machines of this provider cannot be stopped", "End the cluster with `clusterctl down`."
        )
    found = machines.existing(provider)
    head = machines.head_of(found)
    if head is None:
        raise CliError("the head's machine is gone", "Run `clusterctl down`, then `clusterctl up`.")
    try:
        progress("stopping the head")
        provider.stop([head.id])  # first, so that no autoscaler replaces the workers
    except ProviderError as error:
        raise from_provider(error) from error
    workers = {machine.id for machine in machines.existing(provider) if machine.id != head.id}
    if workers:
        progress(f"giving back {len(workers)} worker{'s' if len(workers) > 1 else ''}")
        machines.end_all(provider, only=workers)
    record.state = homes.STOPPED
    home.write(record)
