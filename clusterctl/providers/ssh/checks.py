"""What would keep a machine from becoming a node, found before anything is installed. Pure but for `examine`."""

from __future__ import annotations

import ipaddress
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.provider import MachineTags, Problem, ShellAuthFailed, ShellError
from clusterctl.shell import words
from clusterctl.shell.connections import HostKeyChanged, SshTarget
from clusterctl.shell.ssh import SshShell

from . import claim as claims
from .claim import Claim, Facts

THIS_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
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
print(version, _imp.extension_suffixes()[0].split(".")[1], disk.f_bavail * disk.f_frsize, time.time(), *taken)'"""
"""Imports only what is built into the interpreter: anything else is read from files there, on each machine."""
_ABI = str(sysconfig.get_config_var("SOABI"))
_TELL = f"""\
path=$(command -v python{THIS_VERSION}) && [ ! -L "$path" ] && [ -x "$path" ] \\
    && [ "$path" -ef "$(command -v {{python}})" ] \\
    && [ -e "${{{{path%/bin/*}}}}/lib/python{THIS_VERSION}/lib-dynload/_json.{_ABI}.so" ] \\
    && set -- $(stat -f -c '%a %S' . && date +%s) && [ $# = 3 ] && echo {THIS_VERSION} {_ABI} $(($1 * $2)) $3"""
"""The same of a Python of our own version, as distributions install it: its files say what it would say, and to start
it costs more than all else that is asked."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A machine's answer. `python`: its version and binary interface; "" where there is none."""

    facts: Facts
    python: str = ""
    abi: str = ""
    disk: int = 0
    skew_s: float = 0.0
    taken: tuple[int, ...] = ()  # ports that others have


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
    if len(said) < 4:
        return Examined(facts)
    version, abi, disk, now, *taken = said
    return Examined(
        facts, version, abi, int(disk), float(now) - time.time(), tuple(int(port) for port in taken)
    )


def question(python: str, ports: Sequence[int] = ()) -> str:
    """What a machine is asked: its first line of answer is `python`, its interface, the bytes free on disk, the time
    and those of the ports that are taken, or empty where no Python works; then comes the answer to `LOOK`."""
    word = words.path(python)
    command = f"answer=$({word} {_ASK} {' '.join(map(str, ports))} 2>/dev/null); echo $answer"
    if not ports:
        command = f"{{ {_TELL.format(python=word)}; }} 2>/dev/null || {{ {command}; }}"
    return f"{command}\n{claims.LOOK}"


def problems_of(
    answers: Mapping[str, Examined | Exception],
    head: str,
    python: str,
    is_ours: Callable[[Claim], bool],
    version: str = THIS_VERSION,
) -> list[Problem]:
    """What is wrong, machine by machine.

    Args:
        is_ours: `up` may take a machine with such a claim.
        version: of Python that a machine needs; "": any.
    """
    found = []
    for name, answer in answers.items():
        if isinstance(answer, Examined):
            found += _of(name, answer, name == head, len(answers) == 1, python, is_ours, version)
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
    version: str,
) -> list[Problem]:
    abi = sysconfig.get_config_var("SOABI")
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
        advice = f"Install Python {version or '3'} there, or name it as provider.python."
        out.append(Problem(f"{name} has no `{python}` that works", advice))
        return out
    if version and seen.python != version:
        advice = f"Nodes need Python {version}, as here: install it there, and name it as provider.python."
        out.append(Problem(f"{name} has Python {seen.python}", advice))
    elif version and seen.abi != abi:
        advice = f"Nodes need the kind of machine that this one is: {abi}."
        out.append(Problem(f"{name} has a Python for {seen.abi}", advice))
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
