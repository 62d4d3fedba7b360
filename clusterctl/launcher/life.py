"""Whether a node's daemon runs. Its machine proves it, by the daemon's record (pid and start time) and the processes.

Silence proves nothing. A machine that cannot be asked may run the daemon still.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum

from autoscaler.provider import Machine, MachineState, ProviderError, Shell, ShellError
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.definition import ClusterSpec

from .containers import container_of, shell_of, stopped_container
from .runtimes.chosen import runtime_of

_ASK_S = 15.0
_AT_ONCE = 32


class Life(Enum):
    """What the machine proves of its node's daemon."""

    RUNS = "runs"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Proof:
    """What a machine says of its node. `words`: what runs there, or why that is unknown."""

    life: Life
    words: str = ""


def of(provider: OperatorProvider, spec: ClusterSpec, machine: Machine) -> Proof:
    """Asks a machine that runs. Never raises because of the machine."""
    try:
        shell = provider.shell(machine)
        try:
            return _ask(spec, machine, shell)
        finally:
            shell.close()
    except (ShellError, ProviderError, OSError) as error:
        return Proof(Life.UNKNOWN, str(error))


def may_run(provider: OperatorProvider, spec: ClusterSpec, machines: Sequence[Machine]) -> list[str]:
    """The ids of those machines whose node runs, or may run."""
    running = [machine for machine in machines if machine.state is MachineState.RUNNING]
    if not running:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(running)), thread_name_prefix="asks a machine") as pool:
        proofs = list(pool.map(lambda machine: of(provider, spec, machine), running))
    return [
        machine.id for machine, proof in zip(running, proofs, strict=True) if proof.life is not Life.ENDED
    ]


def read(printed: str, exit_status: int) -> Proof:
    """What a machine's answer proves. Pure."""
    lines = printed.splitlines()
    if exit_status or "looked" not in lines:
        return Proof(Life.UNKNOWN, f"it cannot tell what runs there: {printed.strip()[-500:]}")
    said = dict(line.split(" ", 1) for line in lines if " " in line)
    if is_recorded(said.get("daemon", ""), said.get("stat", ""), said.get("boot", "")):
        return Proof(Life.RUNS, f"process {said['stat'].split(' ', 1)[0]}")
    if "process" in said:
        return Proof(Life.RUNS, f"process {said['process']}")
    return Proof(Life.ENDED)


def is_recorded(record: str, stat: str, boot_id: str) -> bool:
    """Whether the process of a daemon's record is the one that has its number now, since the same boot. Pure."""
    state, *fields = stat.rpartition(")")[2].split() or [""]
    try:
        known = json.loads(record)
        if known.get("boot_id", "") not in ("", boot_id):
            return False
        return state != "Z" and int(fields[18]) == int(known["start_ticks"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False


def _ask(spec: ClusterSpec, machine: Machine, shell: Shell) -> Proof:
    container = container_of(spec, machine.node_type, machine.is_head)
    if container is not None:
        stopped = shell.run(stopped_container(container.name), timeout_s=_ASK_S)
        if stopped.exit_status == 0 and stopped.output.strip() == "stopped":
            return Proof(Life.ENDED)
    inside = shell_of(spec, machine.node_type, machine.is_head, shell)
    answer = inside.run(runtime_of(spec).life_question, timeout_s=_ASK_S)
    return read(answer.output, answer.exit_status)
