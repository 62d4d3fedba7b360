"""What facts mean: findings, causes before their consequences. Pure.

What follows from a cause that is named is not named again: of a head whose machine cannot be entered nobody needs to
hear that its API does not answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from autoscaler.provider import Machine, MachineState
from clusterctl import output
from clusterctl.home import STARTING, STOPPED
from clusterctl.launcher.machines import head_of

from .facts import Api, Entry, Facts, Seen

_LEAST_DISK = 2**30
_MOST_SKEW_S = 30.0
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_REMOTE = frozenset(
    {
        "nfs",
        "nfsd",
        "cifs",
        "smb",
        "smb2",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "fhgfs",
        "panfs",
        "ocfs2",
        "fuseblk",
        "v9fs",
    }
)
_ON_THE_WAY = frozenset({"QUEUED", "REQUESTED", "ALLOCATED", "SETTING_UP"})


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"  # something does not work
    WARNING = "warning"  # something will not, or costs for nothing
    NOTE = "note"  # good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `about`: the machine or node, "" for the cluster."""

    severity: Severity
    what: str
    advice: str
    about: str = ""


def diagnose(facts: Facts) -> list[Finding]:
    """All findings; empty: nothing is wrong."""
    found = [*_here(facts)]
    if facts.listing_problem:
        return [*found, _error(f"the provider does not list machines: {facts.listing_problem}", _LISTING)]
    found += _leftovers(facts)
    found += _head(facts)
    for machine in facts.machines:
        if machine.id in facts.seen:
            found += _machine(facts, machine, facts.seen[machine.id])
    return [*found, *_work(facts)]


_LISTING = "See that this machine reaches the provider, and that its credentials hold: clusterctl check FILE."


def _error(what: str, advice: str, about: str = "") -> Finding:
    return Finding(Severity.ERROR, what, advice, about)


def _warning(what: str, advice: str, about: str = "") -> Finding:
    return Finding(Severity.WARNING, what, advice, about)


def _note(what: str, advice: str = "", about: str = "") -> Finding:
    return Finding(Severity.NOTE, what, advice, about)


# ------------------------------------------------------------ what is here


def _here(facts: Facts) -> Iterator[Finding]:
    if facts.busy:
        yield _note(facts.busy, "What is found may be on its way: look again when that has finished.")
    if facts.spec_problem:
        yield _warning(f"its YAML cannot be read: {facts.spec_problem}", "Correct it before the next `up`.")
    if facts.state == STARTING and not facts.busy:
        yield _error("`up` began with it and did not finish", f"Run it again: {facts.up}")
    elif facts.spec_changed and facts.state:
        yield _note("its YAML says something else than what is up", f"To apply it: {facts.up}")
    if facts.secret:
        advice = "Only `clusterctl down` and `up` make another one."
        if "others" in facts.secret:
            advice = f"Run: chmod 600 {facts.secret_file}"
        yield _error(facts.secret, advice)
    for problem in facts.can_refuse:
        yield Finding(Severity.ERROR if problem.fatal else Severity.WARNING, problem.what, problem.advice)


def _leftovers(facts: Facts) -> Iterator[Finding]:
    if facts.strangers:
        names = ", ".join(facts.strangers)
        yield _warning(
            f"machines of a cluster of this name run that nobody remembers here: {names}",
            f"{facts.down} ends them; `up` ends them too, and starts over.",
        )
    if not facts.state and not facts.strangers and not facts.machines:
        yield _note("there is no such cluster: nothing is remembered here, and no machine carries its tags")


# ------------------------------------------------------------ the head


def _head(facts: Facts) -> Iterator[Finding]:
    if not facts.state:
        return
    head = head_of(facts.machines)
    if head is None:
        if facts.stops_itself and not facts.machines:
            yield _note("it has ended by itself, as nobody used it", f"Bring it up again: {facts.up}")
        else:
            rest = f"; {len(facts.machines)} workers are still there" if facts.machines else ""
            yield _error(
                f"the head's machine is gone{rest}",
                f"{facts.up} starts over; clusterctl down ends what is left.",
            )
        return
    heads = [machine.id for machine in facts.machines if machine.is_head]
    if len(heads) > 1:
        yield _warning(f"it has several heads: {', '.join(heads)}", f"{facts.up} keeps one of them.")
    if head.state is not MachineState.RUNNING:
        if facts.state == STOPPED or facts.stops_itself:
            yield _note("it is stopped", f"Start it again: {facts.up}")
        else:
            yield _error(
                f"the head's machine does not run: it is {head.state.value}",
                f"{facts.up} starts over; clusterctl logs shows what its daemons wrote last, where that is possible.",
                head.id,
            )
        return
    seen = facts.seen.get(head.id)
    if seen is not None and seen.entry is Entry.OPEN and facts.has_our_head:
        yield from _heads_daemons(facts, head, seen)


def _heads_daemons(facts: Facts, head: Machine, seen: Seen) -> Iterator[Finding]:
    if not seen.started:
        yield _error(
            f"no daemon was started on the head's machine{_quoted(facts.setup_log)}",
            f"Its set-up did not get so far: correct what failed, then {facts.up}",
            head.id,
        )
    elif seen.is_alive and "head" not in seen.daemons:
        yield _error(
            f"the head has crashed, and its keeper restarts it{_quoted(seen.last_words)}",
            "If that goes on: clusterctl logs --file keeper",
            head.id,
        )
    elif not seen.is_alive:
        yield _error(
            f"the head's process has ended{_quoted(seen.last_words)}",
            f"{facts.up} starts over; clusterctl logs --file head shows more.",
            head.id,
        )
    elif facts.api is Api.NOBODY:
        where = f"port {facts.api_port}" if facts.api_port else "its port"
        reason = (
            f"the head runs, and its API is not reached although {where} is open: {facts.api_words}"
            if facts.api_port in seen.listening
            else f"the head runs, and nobody listens at {where} of its machine"
        )
        yield _error(reason, "clusterctl logs --file head shows what it does.", head.id)
    elif facts.api is Api.SLOW:
        yield _error(
            "the head's API does not answer in time",
            "It is busy or hangs: see clusterctl stack there.",
            head.id,
        )
    elif facts.api is Api.DENIED:
        yield _error(
            "the head does not accept this machine's secret: it is of another life of the cluster",
            f"{facts.down}, then {facts.up}",
            head.id,
        )
    elif facts.api is Api.NO_CONTROL:
        yield _error(
            "the head has lost its control store and starts it again",
            "If that goes on: clusterctl logs --file control",
            head.id,
        )
    elif missing := [name for name in ("control", "node") if name not in seen.daemons]:
        words = {"control": "control store", "node": "node agent"}
        yield _error(
            f"on the head's machine the {' and the '.join(words[name] for name in missing)} does not run",
            "The head starts it again; if that goes on: clusterctl logs",
            head.id,
        )
    elif seen.survives_reboot is False:
        yield _note(
            "nothing starts the head after a reboot of its machine",
            f"After a reboot: {facts.up}. A head outside a container survives one where cron runs when `up` starts it.",
            head.id,
        )


# ------------------------------------------------------------ every machine


def _machine(facts: Facts, machine: Machine, seen: Seen) -> Iterator[Finding]:
    name = "the head's machine" if machine.is_head else f"worker {machine.instance_id or machine.id}"
    if seen.entry is not Entry.OPEN:
        yield _closed(name, machine, seen)
        return
    if seen.disk_bytes is not None and seen.disk_bytes < _LEAST_DISK:
        advice = "Make room: logs, spilled objects and packages need some."
        yield _error(f"{name} has {output.size(seen.disk_bytes)} left on its disk", advice, machine.id)
    if seen.skew_s is not None and abs(seen.skew_s) > _MOST_SKEW_S:
        advice = "Set it, and keep it right (chrony, systemd-timesyncd): times in logs and status mislead otherwise."
        yield _warning(f"the clock of {name} is {seen.skew_s:+.0f} s off", advice, machine.id)
    if not facts.has_our_head:
        return
    kind = "memory" if seen.file_system in _IN_MEMORY else "network" if seen.file_system in _REMOTE else ""
    if kind:
        advice = "Name a local disk as node_dir in the YAML: jobs, their output and spilled objects are kept there."
        yield _warning(
            f"{name} keeps its files on a {kind} file system ({seen.file_system})", advice, machine.id
        )
    yield from _runtime(facts, machine, seen, name)
    if machine.is_head or not _has_control_store(facts):
        return
    if seen.reaches_head is False:
        advice = "See to the firewall between the machines: workers need every port of the head's machine."
        yield _error(f"{name} does not reach the head's control store", advice, machine.id)
    elif seen.started and not seen.is_alive:
        advice = "The autoscaler replaces it."
        yield _error(f"the node agent of {name} has ended{_quoted(seen.last_words)}", advice, machine.id)


def _has_control_store(facts: Facts) -> bool:
    """Whether the head has what workers need; where it has not, that is what is wrong, and not with them."""
    head = head_of(facts.machines)
    seen = facts.seen.get(head.id) if head else None
    return seen is not None and seen.is_alive and "control" in seen.daemons


def _closed(name: str, machine: Machine, seen: Seen) -> Finding:
    where = machine.public_address or machine.address
    text, advice = {
        Entry.REFUSED: ("refuses connections", "It is up, and its sshd is not (yet): see to that."),
        Entry.SILENT: (
            "does not answer",
            f"See that it runs, that {where} is its address, and to firewalls.",
        ),
        Entry.REJECTED: (
            "does not accept our key",
            "Correct auth.ssh_user and auth.ssh_private_key, or let the key in.",
        ),
        Entry.OTHER_KEY: (
            "shows another host key than before",
            "If it was installed anew, do as the message says.",
        ),
        Entry.FAILED: ("cannot be entered", "Do what the message says."),
    }[seen.entry]
    return _error(f"{name} ({where}) {text}: {seen.words}", advice, machine.id)


def _runtime(facts: Facts, machine: Machine, seen: Seen, name: str) -> Iterator[Finding]:
    own = facts.own_version
    if seen.started and not seen.version:
        yield _error(
            f"the runtime of {name} does not work: {seen.runtime_error or 'no Python runs there'}",
            "clusterctl up installs it anew when the cluster starts over.",
            machine.id,
        )
        return
    version = facts.head_version[0] if machine.is_head and facts.head_version else seen.version
    if version and version != own:
        advice = "Use the same version here and there: clusterctl down, then up, brings this one over."
        yield _warning(f"{name} runs clusterctl {version}, and here is {own}", advice, machine.id)
    heads = facts.head_version[1] if facts.head_version else ""
    if seen.python and heads and seen.python != heads:
        advice = "Programs and their data travel between the two, so the minor versions must be the same."
        yield _error(f"{name} runs Python {seen.python}, and the head {heads}", advice, machine.id)


def _quoted(lines: object) -> str:
    text = [str(line) for line in lines] if isinstance(lines, list | tuple) else []
    return "; the last that it wrote:\n  " + "\n  ".join(text) if text else ""


# ------------------------------------------------------------ nodes and work


def _work(facts: Facts) -> Iterator[Finding]:
    scaling = facts.status.get("autoscaler") or {}
    yield from _failures(facts, scaling)
    if not facts.status:
        return
    for problem in scaling.get("problems", ()):
        yield _error(f"the autoscaler: {problem}", "Nothing is launched or ended before that is solved.")
    for waiting in scaling.get("waiting", ()):
        if waiting["infeasible"]:
            yield _warning(
                f"{waiting['count']} x {waiting['demand']} can never run: {waiting['why']}",
                "Change the program's request or the node types.",
            )
    joined = {node["instance_id"] for node in facts.status["nodes"] if node["state"] != "DEAD"}
    coming = {item["id"] for item in scaling.get("instances", ()) if item["state"] in _ON_THE_WAY}
    ending = {item["id"] for item in scaling.get("instances", ()) if item["state"] == "TERMINATING"}
    for machine in facts.machines:
        known = machine.instance_id in joined | coming | ending
        if machine.state is MachineState.RUNNING and not machine.is_head and not known:
            yield _warning(
                f"machine {machine.id} runs and is no node of the cluster",
                "The autoscaler ends such machines after a while; if it stays, look at: clusterctl monitor",
                machine.id,
            )


def _failures(facts: Facts, scaling: Mapping[str, Any]) -> Iterator[Finding]:
    """Nodes that failed; while nothing is missing any more they are only worth knowing."""
    is_short = any(kind["running"] < kind["min_workers"] for kind in scaling.get("types", ()))
    kind = Severity.ERROR if is_short or scaling.get("waiting") else Severity.WARNING
    for failure in facts.failures:
        step = f" at step '{failure.step}'" if failure.step else ""
        yield Finding(
            kind,
            f"node {failure.instance_id} ({failure.node_type}) failed{step}: {failure.reason}"
            + _quoted([*failure.log]),
            f"All of its set-up: clusterctl logs --node {failure.instance_id}"
            if failure.has_log
            else "The autoscaler goes on trying: clusterctl status shows what it does.",
            failure.instance_id,
        )
