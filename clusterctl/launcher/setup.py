"""Turns a machine into a node: the steps are computed purely, then run through the machine's shell and
logged. What runs on the node, and its own facts, are in `runtimes`.

The same code serves `up` for the head and the head's autoscaler for workers.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from autoscaler.provider import NodeType, SetupError, Shell
from clusterctl.artefacts.target import NoRuntime, Target, Unsupported
from clusterctl.shell import archive
from clusterctl.shell.container import ContainerShell
from clusterctl.spec.definition import ClusterSpec
from clusterctl.startup import lease_guard
from clusterctl.sync import transfer
from clusterctl.sync.rules import rules
from clusterctl.sync.transfer import Mount

from . import containers, readiness
from .containers import Container
from .node_look import Found, Question
from .shipping import Shipment
from .steps import Runner, SetupLog, Step, in_bash

NODE_FOLDER = "~/.clusterctl-node"
"""Where a node keeps what it was given: the secret, the head's configuration."""

PYTHON = '"${CLUSTERCTL_PYTHON:-python3}"'
BASE_PYTHON = '"${CLUSTERCTL_BASE_PYTHON:-python3}"'
"""Of a machine that gets the runtime from us: what that runs on."""
ORPHAN_MINUTES = 10.0
"""So long a worker's machine that costs waits for its head."""
_PACK = "find the runtime"
_INSTALL = "install the runtime"
_LOOK_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 120.0  # one that was interrupted may be under way
_ASKS_NOBODY = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "a",
    "PIP_NO_INPUT": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Told to programs that would otherwise wait for an answer; there is no terminal, either."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All that decides a node's steps."""

    is_head: bool
    start: str = ""  # "": nothing is started
    secret_file: str = ""  # "": none travels
    files: tuple[tuple[str, str], ...] = ()  # further private files: (name in the node's folder, file here)
    mounts: tuple[Mount, ...] = ()
    digests: str = ""  # where digests of the mounts' files are kept
    ready: str = ""  # what must succeed before anything is done
    initialization: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    kind_commands: tuple[str, ...] = ()  # of heads alone, or of workers alone
    start_commands: tuple[str, ...] = ()
    python: tuple[int, int] | None = field(default_factory=lambda: sys.version_info[:2])  # None: any
    looks: bool = True  # at the node's Python, before anything is done
    runtime: Callable[[Target], Shipment] | None = None  # what is shipped; None: the machine has it
    install: tuple[Step, ...] = ()  # of what is not shipped
    container: Container | None = None  # in which the node is; None: in none
    env: Mapping[str, str] = field(default_factory=dict)  # of the spec's commands
    head: str = ""  # of a worker: where it reaches the head, HOST:PORT
    is_cloud: bool = (
        False  # its platform may let our key in late; a worker's machine costs until it is shut down
    )


def steps_before(facts: NodeFacts) -> list[Step]:
    """What comes before the look at a node, in order: what ends its machine when nobody needs it, and the container
    in which it is."""
    return [*_lease_steps(facts), *_container_steps(facts)]


def question(facts: NodeFacts) -> Question | None:
    """What a node is asked first; None: nothing."""
    if not facts.looks:
        return None
    return Question(
        BASE_PYTHON if facts.runtime else PYTHON,
        NODE_FOLDER,
        facts.python,
        facts.head,
        f"the image {facts.container.image}" if facts.container else "the node",
    )


def steps(facts: NodeFacts, found: Found, runtime: Shipment | None = None) -> list[Step]:
    """The steps of a node, in order, given what there is. `runtime`: what is shipped to it."""
    out = [*_install_steps(facts, found, runtime), *facts.install]
    if facts.container is None:
        out += _users("initialization_commands", facts.initialization)
    if facts.mounts:
        out.append(Step("file_mounts", mounts=facts.mounts))
    out += _users("setup_commands", facts.commands)
    out += _users("head_setup_commands" if facts.is_head else "worker_setup_commands", facts.kind_commands)
    if facts.start:
        out += _users("start_commands", facts.start_commands)
        out += _lease_steps(facts)  # the machine may have been restarted meanwhile, and has no guard then
        out.append(Step("start", facts.start, timeout_s=_START_TIMEOUT_S))
    return out


def _install_steps(facts: NodeFacts, found: Found, runtime: Shipment | None) -> Iterator[Step]:
    """The runtime, where it is not there already, and the node's private files. Daemons that run keep what they run
    on."""
    files = _private_files(facts)
    if runtime is not None and found.runtime != runtime.digest and (facts.start or not found.runtime):
        command = runtime.install(NODE_FOLDER, shlex.quote(found.python))
        yield Step(_INSTALL, command, input=(*files, *runtime.contents()))
    elif files:
        yield Step("copy the private files", archive.unpacking(NODE_FOLDER), input=files)


def _private_files(facts: NodeFacts) -> tuple[archive.File, ...]:
    names = (*(("secret", facts.secret_file),) * bool(facts.secret_file), *facts.files)
    return tuple(archive.File(name, path) for name, path in names)


def without_start(facts: NodeFacts) -> NodeFacts:
    """The same node, brought up to date while its daemons run on."""
    return replace(facts, start="", container=containers.kept(facts.container))


def only_start(facts: NodeFacts) -> NodeFacts:
    """The same node, whose daemons are started without its files and setup commands."""
    return replace(
        facts,
        mounts=(),
        initialization=(),
        commands=(),
        kind_commands=(),
        container=containers.kept(facts.container),
    )


def _users(key: str, commands: Sequence[str]) -> list[Step]:
    return [Step(f"{key}[{index}]", command, is_users=True) for index, command in enumerate(commands)]


def _container_steps(facts: NodeFacts) -> Iterator[Step]:
    """initialization_commands run before, on the machine: they may log in to a registry."""
    container = facts.container
    if container is None:
        return
    yield Step("container engine", container.engine(), timeout_s=120.0, on_machine=True)
    for step in _users("initialization_commands", facts.initialization):
        yield replace(step, on_machine=True)
    if container.pull:
        yield Step(f"pull {container.image}", container.fetch(), on_machine=True)
    yield Step(f"container {container.name}", container.run(), on_machine=True)


def _lease_steps(facts: NodeFacts) -> Iterator[Step]:
    """A worker's machine that costs shuts itself down when the head is gone. Before all that may take long: the head
    may be gone by then."""
    if not (facts.head and facts.is_cloud):
        return
    name = "lease_guard.py"
    guard, file = f"{NODE_FOLDER}/{name}", f"{NODE_FOLDER}/head_address"
    start = f"{BASE_PYTHON} -I {guard} {file} {ORPHAN_MINUTES:g} </dev/null >>{NODE_FOLDER}/lease.log 2>&1"
    yield Step(
        "lease",
        f"{archive.unpacking(NODE_FOLDER)} && echo {shlex.quote(facts.head)} > {file} && (setsid {start} &)",
        input=(archive.File(name, lease_guard.__file__),),
        timeout_s=60.0,
        on_machine=True,
    )


def operators_mounts(spec: ClusterSpec) -> tuple[Mount, ...]:
    """What the operator's machine brings to the head."""
    chosen = rules(spec.rsync_exclude, spec.rsync_filter)
    return tuple(
        Mount(target, os.path.expanduser(source), chosen) for target, source in spec.file_mounts.items()
    )


def files_digest(mounts: Sequence[Mount], digests: str) -> str:
    """Changes when something of what the mounts hold does; "" without mounts.

    Raises:
        SyncError: something is not there, or cannot be read.
    """
    return transfer.contents_digest(mounts, transfer.manifests(mounts, digests)) if mounts else ""


def heads_mounts(spec: ClusterSpec) -> tuple[Mount, ...]:
    """What the head brings to its workers: what it was brought, and the `cluster_synced_files` that there are."""
    chosen = rules(spec.rsync_exclude, spec.rsync_filter)
    home = os.path.expanduser("~")
    mounts = [
        Mount(target, os.path.join(home, os.path.expanduser(target)), chosen)
        for target in (*spec.file_mounts, *spec.cluster_synced_files)
    ]
    return tuple(
        mount for mount in mounts if mount.target in spec.file_mounts or os.path.exists(mount.source)
    )


def head_facts(spec: ClusterSpec, host: str) -> NodeFacts:
    """What a spec says of the head, whatever runs there. `host`: its address, as the other machines reach it."""
    return NodeFacts(
        is_head=True,
        mounts=operators_mounts(spec),
        ready=spec.ready_command,
        initialization=tuple(spec.initialization_commands),
        commands=tuple(spec.setup_commands),
        kind_commands=tuple(spec.head_setup_commands),
        container=containers.container_of(spec, spec.head_node_type, is_head=True),
        env=_commands_env(host),
    )


def worker_facts(
    spec: ClusterSpec,
    node_type: NodeType,
    head: str,
    mounts: tuple[Mount, ...],
) -> NodeFacts:
    """What a spec says of a worker, whatever runs there. `head`: where it reaches the head, HOST:PORT."""
    return NodeFacts(
        is_head=False,
        mounts=mounts,
        ready=spec.ready_command,
        initialization=tuple(node_type.setup.get("initialization_commands", ())),
        commands=tuple(node_type.setup.get("setup_commands", ())),
        kind_commands=tuple(node_type.setup.get("worker_setup_commands", ())),
        container=containers.container_of(spec, node_type.name, is_head=False),
        env=_commands_env(head.rpartition(":")[0].strip("[]")),
        head=head,
    )


def _commands_env(head_host: str) -> dict[str, str]:
    """What the spec's commands find in their environment: where the head is, in our word and in Ray's, and that nobody
    is there to be asked."""
    return {**_ASKS_NOBODY, "CLUSTERCTL_HEAD_IP": head_host, "RAY_HEAD_IP": head_host}


@contextmanager
def open_log(path: str) -> Iterator[SetupLog]:
    """Appends to the log at `path`, readable by the owner only."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        yield SetupLog(file)


def run(
    shell: Shell,
    facts: NodeFacts,
    log: SetupLog,
    on_step: Callable[[str], None] = lambda name: None,
    deadline_s: float = readiness.DEADLINE_S,
) -> str:
    """Runs all steps; returns what the start command printed.

    Args:
        shell: the machine's, also where the node is in a container of it.

    Raises:
        SetupError: a step failed; its reason ends with the last lines that it printed.
    """
    inside = shell if facts.container is None else ContainerShell(shell, facts.container.name)
    runner = Runner(shell, inside, log, facts.env, facts.digests, on_step)
    on_step("wait for the shell")
    left_s = readiness.await_shell(shell, log.write, deadline_s, readiness.KEYS_S if facts.is_cloud else 0.0)
    if facts.ready:
        on_step("ready_command")
        log.write(f"step: ready_command: {facts.ready}")
        readiness.await_command(shell, in_bash(facts.ready), log.write, left_s)
    runner.run(steps_before(facts))
    found = Found()
    asked = question(facts)
    if asked is not None:
        answer = runner.run([Step("look", asked.command(), timeout_s=_LOOK_TIMEOUT_S)])
        try:
            found = asked.read(answer)
        except SetupError as error:
            log.write(f"FAILED: {error.reason}")
            raise
    return runner.run(steps(facts, found, _runtime(facts, found, log, on_step)))


def _runtime(
    facts: NodeFacts, found: Found, log: SetupLog, on_step: Callable[[str], None]
) -> Shipment | None:
    """What is shipped to a machine.

    Raises:
        SetupError: there is nothing for its kind.
    """
    if facts.runtime is None:
        return None
    on_step(_PACK)
    try:
        return facts.runtime(found.target())
    except (NoRuntime, Unsupported, SetupError) as error:
        failed = error if isinstance(error, SetupError) else SetupError(_PACK, str(error))
        log.write(f"FAILED: {failed.reason}")
        raise failed from error
