"""What would keep a machine from becoming a node, found before anything is installed. Pure but for `examine`."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.provider import MachineTags, Problem, ShellAuthFailed, ShellError
from clusterctl.artefacts.target import LEAST_PYTHON, Target, Unsupported, text
from clusterctl.shell import scripts
from clusterctl.shell.connections import HostKeyChanged
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.target import SshTarget

from . import claim as claims
from .claim import Claim, Facts

_LEAST_DISK = 2**30
_MOST_SKEW_S = 30.0
_ASK = """-I -S -c 'import _imp, posix, sys, time
taken = []
for port in sys.argv[1:]:
    import socket
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(port)))
        except OSError:
            taken.append(port)
version = "%d.%d" % sys.version_info[:2]
disk = posix.statvfs(".")
try:
    libc = posix.confstr("CS_GNU_LIBC_VERSION") or ""
except (ValueError, OSError):
    libc = ""
abi = _imp.extension_suffixes()[0].split(".")[1]
print(version, abi, libc.replace(" ", "-") or "-", disk.f_bavail * disk.f_frsize, time.time(), *taken)'"""
"""Imports only what is built into the interpreter: anything else is read from files there, on each machine."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A machine's answer. `python`: its version; "" where there is none. `abi`, `libc`: see `Target.read`."""

    facts: Facts
    python: str = ""
    abi: str = ""
    libc: str = ""
    disk: int = 0
    skew_s: float = 0.0
    taken: tuple[int, ...] = ()  # ports that others have

    def target(self) -> Target:
        """What its runtime is made for.

        Raises:
            Unsupported: there is none for it.
        """
        return Target.read(self.abi, self.libc)


def examine(target: SshTarget, python: str, ports: Sequence[int], timeout_s: float) -> Examined:
    """Asks a machine.

    Args:
        ports: which of these are taken there?

    Raises:
        ShellError: it does not answer within this time.
    """
    answer, _, look = (
        SshShell(target).ask(question(python, ports), timeout_s=timeout_s).output.partition("\n")
    )
    facts = claims.read_facts(look)
    said = answer.split()
    if len(said) < 5:
        return Examined(facts)
    version, abi, libc, disk, now, *taken = said
    skew_s = float(now) - time.time()
    return Examined(facts, version, abi, libc, int(disk), skew_s, tuple(int(port) for port in taken))


def question(python: str, ports: Sequence[int] = ()) -> str:
    """What a machine is asked: its first line of answer is `python`, its interface, the C library, the bytes free on
    disk, the time and those of the ports that are taken, or empty where no Python works; then comes the answer to
    `LOOK`."""
    command = f"answer=$({scripts.path(python)} {_ASK} {' '.join(map(str, ports))} 2>/dev/null); echo $answer"
    return f"{command}\n{claims.LOOK}"


def problems_of(
    answers: Mapping[str, Examined | Exception],
    head: str,
    python: str,
    is_ours: Callable[[Claim], bool],
    any_python: bool = False,
) -> list[Problem]:
    """What is wrong, machine by machine.

    Args:
        is_ours: `up` may take a machine with such a claim.
        any_python: the machines' own Python runs no node.
    """
    found = []
    heads = answers.get(head)
    model = heads if isinstance(heads, Examined) else None
    for name, answer in answers.items():
        if isinstance(answer, Examined):
            found += _of(name, answer, name == head, len(answers) == 1, python, is_ours)
            if not any_python:
                found += _unfit(name, answer, model)
        else:
            found.append(_silent(answer, name == head))
    return found


def _silent(error: Exception, is_head: bool) -> Problem:
    if isinstance(error, ShellAuthFailed):
        return Problem(str(error), "Correct auth.ssh_user and auth.ssh_private_key, or let the key in there.")
    if isinstance(error, HostKeyChanged) or not isinstance(error, ShellError):
        return Problem(str(error), "")
    if is_head:
        return Problem(str(error), "The head's machine must answer: see that it runs, and its sshd.")
    return Problem(str(error), "`up` waits for it; a cluster that runs does without it.", fatal=False)


def wrong_address(name: str, address: str, is_head: bool, is_alone: bool) -> Problem | None:
    """What is wrong with the address at which a machine's sshd was reached: other nodes reach the machine there."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # an sshd that a proxy hands a pipe says UNKNOWN
        said = f"the sshd of {name} does not know at which address it was reached (it says {address!r})"
        return Problem(said, "Nodes use that address: enter the machine by an sshd that listens on it.")
    if is_alone or not found.is_loopback:
        return None
    if is_head:
        advice = "Name it in provider.head by an address by which the workers reach it, too."
        return Problem(f"{name} was reached as itself, by {address}", advice)
    said = f"{name} was reached through a tunnel that ends at its loopback address {address}"
    return Problem(said, "Name it by an address that the other nodes reach; auth.ssh_proxy_jump leads there.")


def _of(
    name: str,
    seen: Examined,
    is_head: bool,
    is_alone: bool,
    python: str,
    is_ours: Callable[[Claim], bool],
) -> list[Problem]:
    claim = seen.facts.claim
    out = []
    if claim is not None and not is_ours(claim):
        cluster_id = claim.tags.get(MachineTags.CLUSTER_ID, "?")
        advice = (
            "Name another machine, or end that cluster first. `clusterctl down FILE --adopt "
            f"{cluster_id}` ends it even if it is another owner's."
        )
        out.append(Problem(f"{name} belongs to {claim.cluster}", advice, fatal=is_head))
    if wrong := wrong_address(name, seen.facts.address, is_head, is_alone):
        out.append(wrong)
    if not seen.python:
        advice = f"Install Python {text(LEAST_PYTHON)} or newer there, or name it as provider.python."
        out.append(Problem(f"{name} has no `{python}` that works", advice))
        return out
    if seen.disk < _LEAST_DISK:
        out.append(
            Problem(f"{name} has {seen.disk / 2**20:.0f} MiB free on disk", "Make room: 1 GiB is needed.")
        )
    if seen.facts.claim is None:  # else they may be the cluster's own
        advice = "End what listens there, or choose another port (ports, or --port of `ray start`)."
        out += [Problem(f"port {port} of {name} is in use", advice) for port in seen.taken]
    if abs(seen.skew_s) > _MOST_SKEW_S:
        advice = "Set it; logs of different nodes cannot be compared otherwise."
        out.append(Problem(f"the clock of {name} is {seen.skew_s:+.0f} s off", advice, fatal=False))
    return out


def _unfit(name: str, seen: Examined, head: Examined | None) -> list[Problem]:
    """Whether a machine's Python can run a node of a cluster with this head."""
    if not seen.python:
        return []
    try:
        own = seen.target()
    except Unsupported as error:
        advice = f"Install CPython {text(LEAST_PYTHON)} or newer there, and name it as provider.python."
        return [Problem(f"{name} has Python {seen.python}, on which no node runs: {error}", advice)]
    try:
        heads = head.target() if head is not None else own
    except Unsupported:
        return []  # which is said of the head
    if own.python != heads.python:
        advice = (
            "All nodes of a cluster need the same minor version: name one that all have as provider.python."
        )
        return [Problem(f"{name} has Python {own.version}, the head has {heads.version}", advice)]
    if own.machine != heads.machine:
        advice = "All nodes of a cluster need the same kind of CPU."
        return [Problem(f"{name} has a CPU of kind {own.machine}, the head has {heads.machine}", advice)]
    return []
