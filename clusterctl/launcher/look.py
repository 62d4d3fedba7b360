"""Gathers the facts that `up` decides by: what is remembered, what the provider lists, how the head answers."""

from __future__ import annotations

from autoscaler.provider import Machine, MachineState, ProviderError, ShellError
from clusterctl import home as homes
from clusterctl.errors import TimedOut, Unreachable
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.definition import ClusterSpec
from clusterctl.sync.transfer import SyncError

from . import life, machines, node_types, reach, setup
from .cluster import Cluster
from .life import Life
from .notice import notice
from .plan import Change, Facts, Health
from .runtimes.chosen import runtime_of

_ANSWER_S = 3.0
_SHELL_S = 15.0


def facts(cluster: Cluster, is_rehearsal: bool = False) -> Facts:
    """What there is.

    Args:
        is_rehearsal: what is found is not written down, and nothing is cleaned up.

    Raises:
        CliError: the secret of a cluster that was up is gone, or the provider does not say what there is.
    """
    home, spec, record, provider = cluster.home, cluster.spec, cluster.record, cluster.provider
    is_known = cluster.is_known
    if is_known and record.api_url:
        home.secret(record.name)  # without it nothing can be asked or begun: missed before anything is done
    spec_changed = record.spec_hash != homes.spec_hash(spec)
    change = node_types.head_change(record.spec, spec) if is_known and spec_changed else Change.NOTHING
    if is_known and change is Change.NOTHING and _files_changed(home, spec, record):
        change = Change.SETUP
    asked = is_known and record.state != homes.STOPPED
    answers, trouble = answer(home, record, provider) if asked else (Health.UNKNOWN, "")
    if answers is Health.ANSWERS:
        # A head that answers looks after its machines itself: they are not listed, nothing is planned for them.
        return Facts(record.state, answers, spec_changed=spec_changed, change=change)
    if answers is Health.SLOW and record.head is not None and provider.capabilities.forward_ports:
        trouble = _trouble(provider, record.head)
        if trouble:
            there = machines.head_of(machines.listed_with(provider, record.head.id))
            if there is not None and there.state is MachineState.RUNNING:
                return Facts(record.state, Health.CUT_OFF, trouble, record.head.id)
            answers = Health.SILENT  # somebody stopped or ended its machine
    if answers is Health.SILENT and not is_rehearsal:
        notice(home, record, provider)
    listed = machines.listed_with(provider, record.head.id if is_known and record.head else "")
    head = machines.head_of(listed)
    runs = head is not None and head.state is MachineState.RUNNING
    if answers is Health.SILENT or (runs and is_known and record.state == homes.STOPPED):  # others started it
        answers, trouble = _proved(home, record, provider, head, trouble)
        if answers is Health.ANSWERS:
            if not is_rehearsal:
                home.write(record)
            return Facts(record.state, answers, spec_changed=spec_changed, change=change)
    may_end = is_known and (record.state != homes.STARTING or change is Change.MACHINE)
    is_decided = answers in (Health.DEAD, Health.UNKNOWN)
    return Facts(
        record_state=record.state if is_known else "",
        health=answers,
        trouble=trouble,
        head_id=head.id if head else "",
        head_stopped=head is not None and head.state in (MachineState.STOPPING, MachineState.STOPPED),
        machines=tuple(machine.id for machine in listed),
        live=tuple(life.may_run(provider, record.spec, listed)) if may_end and is_decided else (),
        strangers=tuple(
            machine.id
            for other in machines.lives(provider, record, record.name)
            if other != record.cluster_id
            for machine in machines.existing(cluster.provider_of(other))
        ),
        spec_changed=spec_changed,
        change=change,
    )


def head_is_dead(home: Home, record: ClusterRecord, provider: OperatorProvider) -> bool:
    """Whether all that ran on the head has ended: its machine proves it, or is gone or stopped.

    Raises:
        CliError: the provider does not say what there is.
    """
    answers, trouble = answer(home, record, provider)
    if answers is not Health.SILENT:
        return False
    head = machines.head_of(machines.existing(provider))
    return _proved(home, record, provider, head, trouble)[0] is Health.DEAD


def _proved(
    home: Home, record: ClusterRecord, provider: OperatorProvider, head: Machine | None, trouble: str
) -> tuple[Health, str]:
    """What has become of a head that does not answer, and why it does not if it may live. A head that moved to another
    address, or whose connection failed by chance, is asked again.

    Args:
        head: its machine, as it is listed.
        trouble: why it did not answer.
    """
    if head is None or head.state is not MachineState.RUNNING:
        return Health.DEAD, ""
    proof = life.of(provider, record.spec, head)
    if proof.life is Life.ENDED:
        return Health.DEAD, ""
    if record.head is None or head.address_for_us != record.head.address_for_us:
        record.head = head  # others stopped and started it, and it has another address now
    answers, again = answer(home, record, provider)
    if answers is not Health.SILENT:
        return answers, again
    if proof.life is Life.RUNS:
        return Health.CUT_OFF, f"its daemon runs ({proof.words}), but {again or trouble}"
    return Health.CUT_OFF, proof.words


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
    return answer(home, record, provider)[0]


def answer(home: Home, record: ClusterRecord, provider: OperatorProvider) -> tuple[Health, str]:
    """How the head's API answers, and why it does not."""
    if not record.api_url:
        return Health.UNKNOWN, ""
    try:
        said = reach.api(home, record, provider).look("/api/version", _ANSWER_S)
    except Unreachable as error:
        return Health.SILENT, error.message
    except TimedOut as error:
        return Health.SLOW, error.message
    found = runtime_of(record.spec).health(said, record.cluster_id)
    if found is Health.SILENT:
        return found, f"another program answers at the port of its API ({record.api_url})"
    return found, ""


def _trouble(provider: OperatorProvider, head: Machine) -> str:
    """Why the head's machine cannot be entered; "" when it can."""
    try:
        shell = provider.shell(head)
        try:
            shell.run("true", timeout_s=_SHELL_S)
        finally:
            shell.close()
    except (ShellError, ProviderError) as error:
        return str(error)
    return ""
