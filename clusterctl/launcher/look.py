"""Gathers the facts that `up` decides by: what is remembered, what the provider lists, how the head answers."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.provider import Machine, MachineState, ProviderError, ShellError
from clusterctl import home as homes
from clusterctl.api_client import Answer
from clusterctl.errors import NotFound, TimedOut, Unreachable, from_provider
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers import OperatorProvider
from clusterctl.spec.definition import ClusterSpec, RayRuntime
from clusterctl.sync.transfer import SyncError

from . import machines, node_types, reach, setup
from .notice import notice
from .plan import Change, Facts, Health

_ANSWER_S = 3.0
_SHELL_S = 15.0


def facts(
    home: Home,
    spec: ClusterSpec,
    record: ClusterRecord,
    is_known: bool,
    provider: OperatorProvider,
    other_life: Callable[[str], OperatorProvider],
    is_rehearsal: bool = False,
) -> Facts:
    """What there is.

    Args:
        record: what is remembered, or a new one.
        other_life: the provider of another id of the cluster.
        is_rehearsal: what is found is not written down, and nothing is cleaned up.

    Raises:
        CliError: the secret of a cluster that was up is gone, or the provider does not say what there is.
    """
    if is_known and record.api_url:
        home.secret(record.name)  # without it nothing can be asked or begun: missed before anything is done
    spec_changed = record.spec_hash != homes.spec_hash(spec)
    change = node_types.head_change(record.spec, spec) if is_known and spec_changed else Change.NOTHING
    if is_known and change is Change.NOTHING and _files_changed(home, spec, record):
        change = Change.SETUP
    asked = is_known and record.state != homes.STOPPED
    answers = health(home, record, provider) if asked else Health.UNKNOWN
    if answers is Health.ANSWERS:
        # A head that answers looks after its machines itself: they are not listed, nothing is planned for them.
        return Facts(record.state, answers, spec_changed=spec_changed, change=change)
    if answers is Health.SLOW and record.head is not None and provider.capabilities.forward_ports:
        trouble = _trouble(provider, record.head)
        if trouble:
            return Facts(record.state, Health.CUT_OFF, trouble, record.head.id)
    if answers is Health.SILENT and not is_rehearsal:
        notice(home, record, provider)
    listed = machines.listed_with(provider, record.head.id if is_known and record.head else "")
    head = machines.head_of(listed)
    trouble = ""
    if answers is Health.SILENT and head is not None and head.state is MachineState.RUNNING:
        if record.head is not None and head.address_for_us != record.head.address_for_us:
            record.head = head  # it was stopped and started by others, and has another address now
            answers = health(home, record, provider)
            if answers is Health.ANSWERS:
                if not is_rehearsal:
                    home.write(record)
                return Facts(record.state, answers, spec_changed=spec_changed, change=change)
        trouble = _trouble(provider, head) if answers is Health.SILENT else ""
    return Facts(
        record_state=record.state if is_known else "",
        health=Health.CUT_OFF if trouble else answers,
        trouble=trouble,
        head_id=head.id if head else "",
        head_stopped=head is not None and head.state in (MachineState.STOPPING, MachineState.STOPPED),
        machines=tuple(machine.id for machine in listed),
        strangers=tuple(
            machine.id
            for other in _clusters(provider, record.name)
            if other != record.cluster_id
            for machine in machines.existing(other_life(other))
        ),
        spec_changed=spec_changed,
        change=change,
    )


def head_is_dead(home: Home, record: ClusterRecord, provider: OperatorProvider) -> bool:
    """Whether all that ran on the head has surely ended: its machine is gone, or can be entered and nobody listens.

    Raises:
        CliError: the provider does not say what there is.
    """
    if health(home, record, provider) is not Health.SILENT:
        return False
    head = machines.head_of(machines.existing(provider))
    return head is None or (head.state is MachineState.RUNNING and not _trouble(provider, head))


def _files_changed(home: Home, spec: ClusterSpec, record: ClusterRecord) -> bool:
    """Whether the mounts hold something else than what the head was brought."""
    try:
        digest = setup.files_digest(setup.operators_mounts(spec), home.digests_file(record.name))
    except SyncError:
        return True  # the check says what is wrong
    return digest != record.files_digest


def health(home: Home, record: ClusterRecord, provider: OperatorProvider) -> Health:
    """Asks the head's API.

    Raises:
        NotFound: the secret is gone.
    """
    if not record.api_url:
        return Health.UNKNOWN
    try:
        answer = reach.api(home, record, provider).look("/api/version", _ANSWER_S)
    except Unreachable:
        return Health.SILENT
    except TimedOut:
        return Health.SLOW
    return judged(answer, None if isinstance(record.spec.runtime, RayRuntime) else record.cluster_id)


def judged(answer: Answer, cluster_id: str | None) -> Health:
    """How the head is that answers so when asked for its version. Where it is not the head that answers, the head is
    gone, and another program has its port. Pure.

    Args:
        cluster_id: None: Ray's dashboard is asked, which knows nothing of our ids.
    """
    is_ray = cluster_id is None
    if answer.status in (401, 403) and (is_ray or answer.complaint):
        return Health.DENIED
    # It answers that it cannot: its control store is coming back, or of Ray's dashboard the part that is asked.
    if answer.status == 500 if is_ray else answer.status in (503, 504) and answer.complaint:
        return Health.SLOW
    try:
        said = answer.json()
    except NotFound:
        return Health.SILENT
    if answer.status != 200 or not isinstance(said, dict):
        return Health.SILENT
    is_ours = "ray_version" in said if is_ray else said.get("cluster_id") == cluster_id
    return Health.ANSWERS if is_ours else Health.SILENT


def _trouble(provider: OperatorProvider, head: Machine) -> str:
    """Why the head's machine cannot be entered; "" when it can: then nobody listens there."""
    try:
        shell = provider.shell(head)
        try:
            shell.run("true", timeout_s=_SHELL_S)
        finally:
            shell.close()
    except (ShellError, ProviderError) as error:
        return str(error)
    return ""


def _clusters(provider: OperatorProvider, name: str) -> list[str]:
    try:
        return list(provider.clusters(name))
    except ProviderError as error:
        raise from_provider(error) from error
