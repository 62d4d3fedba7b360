"""The provider protocol over one's own machines. What belongs to a cluster is written on the machines themselves."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from autoscaler.provider import (
    Auth,
    Capabilities,
    Capacity,
    Config,
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Prepared,
    Problem,
    ProviderError,
    Shell,
    ShellAuthFailed,
    ShellError,
    ShellRefused,
    Transient,
)
from clusterctl.artefacts.target import Target, Unsupported
from clusterctl.providers import identity, ownership
from clusterctl.providers.ownership import OWNER_TAG, ForeignCluster, Ownership
from clusterctl.providers.protocol import ForHead, Seat
from clusterctl.shell.connections import CONNECTIONS
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.ssh_config import SshConfig
from clusterctl.shell.target import SshTarget
from clusterctl.spec import ray_start
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.docker import all_in_containers
from clusterctl.spec.node_dir import session_dir

from . import claim as claims
from . import hosts
from .asking import Asking, tell
from .checks import Examined, problems_of, wrong_address
from .claim import Claim, Facts
from .config import SshNodeConfig, SshProvider
from .memory import Memory
from .own_end import give_back_own
from .silence import Silent

_END_S = 30.0
_CREATING = threading.Lock()


class SshMachines:
    """The machines of one cluster among those that the spec names. See `autoscaler.provider.Provider`.

    Args:
        settings: what `Ownership` takes; `folder`, for pinned host keys, the cluster's key, and what is remembered of
            machines that do not answer.
    """

    def __init__(
        self, spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat = Seat.OPERATOR
    ) -> None:
        assert isinstance(spec.provider, SshProvider)
        self._spec = spec.provider
        self._cluster = spec
        self._head_type = spec.head_node_type
        self._any_python = all_in_containers(spec)  # then it is the image's that counts
        start = ray_start.parse_start(spec.head_start_ray_commands)
        self._ports = [port for port in (spec.ports.control or start.control_port, spec.ports.api) if port]
        self._cluster_id = cluster_id
        self._settings = dict(settings)
        self._ownership = Ownership(settings)
        self._folder = Path(settings["folder"]).expanduser()
        known_hosts = str(self._folder / "known_hosts")
        self._on_head = seat is Seat.HEAD
        if self._on_head:
            self._config = SshConfig("")
            self._base = hosts.heads_base(spec.auth, known_hosts, str(self._folder / "ssh_key"))
        else:
            self._config = SshConfig.read(spec.auth.ssh_config)
            self._base = hosts.operators_base(spec.auth, known_hosts, self._config)
        self._head = hosts.name_of(self._target(self._spec.head))
        self._targets: dict[str, SshTarget] = {}
        self._entries: dict[str, str] = {}
        for text in (self._spec.head, *self._spec.workers):
            target = self._target(text)
            self._targets.setdefault(hosts.name_of(target), target)
            self._entries.setdefault(hosts.name_of(target), text)
        self._cluster_name = spec.cluster_name
        own = self._head if self._on_head else ""
        self._asking = Asking(self._targets, own, self._spec.python, self._head, self._ports)
        self._named = frozenset(self._targets)
        self._lock = threading.Lock()
        self._ending: dict[str, threading.Event] = {}
        self._memory = Memory(self._folder)
        for claim in self._memory.machines().values():  # taken when the spec named them: to be given back
            self._targets.setdefault(claim.host, self._remembered(claim))

    # ------------------------------------------------------------ the protocol

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(forward_ports=True)

    def check(self, node_types: Sequence[NodeType]) -> list[Problem]:
        answers = self._asking.examine_lately(self._entries)
        found = problems_of(answers, self._head, self._spec.python, self._may_be_taken, self._any_python)
        return found + self.check_offline(node_types)

    def check_offline(self, node_types: Sequence[NodeType]) -> list[Problem]:
        return [problem for kind in node_types for problem in self._misnamed(kind)]

    def prepare(self, node_types: Sequence[NodeType]) -> Prepared:
        """Lets the head in: its key goes to every machine that answers."""
        if not (self._folder / "known_hosts").exists():
            for target in self._targets.values():
                CONNECTIONS.close(target)  # so that the next one pins its key
        workers = [name for name in self._entries if name != self._head]
        before = self._memory.let_in()
        try:
            command, env = claims.let_in(identity.ensure(self._folder, self._mark))
            # First: it may happen.
            self._memory.keep_let_in([*before, *(self._entries[name] for name in workers)])
        except OSError as error:
            raise Config(
                f"the cluster's key, and whom it lets in, cannot be written to {self._folder}: "
                f"{error.strerror or error}; make it writable, or make room there"
            ) from error
        answers = self._asking.each(workers, lambda target: _run(target, command, env))
        away = {self._entries[name] for name, answer in answers.items() if _never_reached(answer)}
        with contextlib.suppress(OSError):  # then it names too many
            self._memory.keep_let_in([e for e in self._memory.let_in() if e in before or e not in away])
        refused = [str(error) for error in answers.values() if isinstance(error, ShellAuthFailed)]
        if refused:
            raise Auth("; ".join(refused))
        return Prepared({"machines": ", ".join(self._entries)})

    def offers(self, node_type: NodeType) -> list[Offer]:
        names = [*self._eligible(node_type)]
        if node_type.name == self._head_type:
            names.append(self._head)
        if node_type.zones or not names:
            return []
        smallest: dict[str, float] = {}
        if not {"CPU", "memory"} <= set(node_type.resources):
            for facts in self._asking.look_lately(names).values():
                if isinstance(facts, Facts):
                    for key, amount in (("CPU", facts.cpus), ("memory", facts.memory)):
                        smallest[key] = min(smallest.get(key, amount), amount)
        return [Offer(resources={**smallest, **node_type.resources})]

    def create(self, request: LaunchRequest) -> LaunchResult:
        is_head = request.tags.get(MachineTags.ROLE) == MachineTags.HEAD
        names = [self._head] if is_head else self._eligible(request.node_type)
        with _CREATING:
            seen = self._asking.look_lately(names)
            # What has a claim may have been given back since, by an earlier life of this cluster for one.
            claimed = [name for name, facts in seen.items() if isinstance(facts, Facts) and facts.claim]
            if len(names) - len(claimed) < request.count:
                self._await_given_back(claimed)
            seen |= self._asking.look(claimed)
            ours = [facts.claim for facts in seen.values() if isinstance(facts, Facts) and facts.claim]
            here = {claim.tags[MachineTags.INSTANCE_ID]: claim for claim in ours if self._is_ours(claim)}
            made = [here[name].machine() for name in request.instance_ids if name in here]
            wanted = [index for index, name in enumerate(request.instance_ids) if name not in here]
            free = {
                n: facts
                for n, facts in seen.items()
                if isinstance(facts, Facts) and not self._why_not(n, facts)
            }
            reasons = [self._why_not(name, facts) for name, facts in seen.items() if name not in free]
            while wanted and free:
                batch = [(index, name, free.pop(name)) for index, name in zip(wanted, [*free], strict=False)]
                drafts = {name: self._draft(request, index, name, facts) for index, name, facts in batch}
                answers = self._asking.each(drafts, partial(self._take, drafts))
                self._asking.forget(drafts)
                taken = {name: drafts[name] for name, answer in answers.items() if answer is True}
                known = self._memory.machines()
                self._memory.keep_machines({**known, **taken}, known)
                for index, name, _ in batch:
                    if name in taken:
                        made.append(drafts[name].machine())
                        wanted.remove(index)
                    else:
                        reasons.append(str(answers[name] or f"{name} was taken just now"))
        words = "; ".join(reasons) or "the spec names none"
        error = Capacity(f"no machine is free for {request.node_type.name}: {words}")
        return LaunchResult(tuple(made), (error,) * len(wanted))

    def list(self) -> list[Machine]:
        # Where nothing is known of the cluster it is an `up`, which checks it next, or somebody for once.
        seen = self._asking.look_at_all(examining=not self._on_head and self._memory.is_blank)
        remembered = self._memory.machines()
        if not remembered and all(isinstance(answer, Exception) for answer in seen.values()):
            error = seen[self._head]
            if isinstance(error, ShellAuthFailed):
                raise Auth(
                    f"{error}; correct auth.ssh_user and auth.ssh_private_key, or let the key in there"
                )
            raise Transient(f"no machine answers: {error}")
        out: dict[str, Claim] = {}
        machines = []
        for name, answer in seen.items():
            found = answer.claim if isinstance(answer, Facts) else remembered.get(name)
            if found is not None and self._is_ours(found):
                out[name] = found
                silence = str(answer) if isinstance(answer, Exception) else ""
                machines.append(found.machine(silence, name in self._named))
        self._memory.keep_machines(out, remembered)
        return machines

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        names = {claims.host_of(id): id for id in ids if claims.host_of(id) in self._targets}
        with self._giving_back(names):
            answers = self._asking.each(
                names, lambda target: self._give_back(names[self._name(target)], target)
            )
            self._asking.forget(names)
        result: dict[str, ProviderError | None] = {id: NotFound(f"there is no machine {id}") for id in ids}
        for name, answer in answers.items():
            result[names[name]] = (
                Transient(str(answer))
                if isinstance(answer, ShellError)
                else answer
                if isinstance(answer, ProviderError)
                else None
            )
        return result

    def shell(self, machine: Machine) -> Shell:
        target = self._targets.get(claims.host_of(machine.id))
        if target is None:
            raise NotFound(f"the spec names no machine {claims.host_of(machine.id) or machine.id}")
        claim = self._memory.machines().get(self._name(target))
        if claim is None or claim.id != machine.id:
            found = self._asking.look([self._name(target)])[self._name(target)]
            if isinstance(found, Exception):
                return SshShell(target)  # which says why it does not answer
            claim = found.claim
        if claim is None or claim.id != machine.id:
            raise NotFound(f"machine {machine.id} was given back")
        return SshShell(target, claim.environment(self._spec.python), claims.guard(claim))

    def cleanup(self) -> None:
        """Takes the head's key back, and forgets the host keys. While a machine of the cluster does not answer, or one
        that was let in, what is needed to enter it stays.

        Raises:
            Transient: one that was let in, or may have been, does not.
        """
        listed = [] if self._on_head else self.list()
        if self._on_head or any(not machine.unreachable for machine in listed):
            return
        for entry in self._memory.let_in():
            target = self._target(entry)
            self._targets.setdefault(self._name(target), target)
            self._entries.setdefault(self._name(target), entry)
        # Whoever remembers nothing cannot know what the machines have that do not answer.
        remembers = self._memory.knows_whom_it_let_in
        owing = self._memory.let_in() if remembers else [*self._entries.values()]
        command, env = claims.keep_out(self._mark)
        answers = self._asking.each(self._targets, lambda target: _run(target, command, env))
        errors = {name: error for name, error in answers.items() if isinstance(error, Exception)}
        left = {name: error for name, error in errors.items() if self._entries.get(name) in owing}
        if left or remembers:
            with contextlib.suppress(OSError):  # then it names too many, or there is none, which means all
                self._memory.keep_let_in([self._entries[name] for name in left])
        for machine in listed:  # whoever ended all that it could has named these
            left.pop(claims.host_of(machine.id), None)
        if left:
            said = "\n  ".join(f"{name}: {error}" for name, error in left.items())
            raise Transient(
                f"these machines cannot be entered, and may have the cluster's key and files still:\n  {said}"
            )
        if listed:
            return
        for file in ("ssh_key", "ssh_key.pub", "known_hosts"):
            (self._folder / file).unlink(missing_ok=True)
        self._memory.forget()
        with contextlib.suppress(OSError):  # others' files are in it, or it was never made
            self._folder.rmdir()
        for target in self._targets.values():
            CONNECTIONS.close(target)

    # ------------------------------------------------------------ what the launcher asks

    def stop(self, ids: Sequence[str]) -> None:
        raise Config("one's own machines cannot be stopped, only given back")

    def start(self, ids: Sequence[str]) -> None:
        raise Config("one's own machines cannot be started from here")

    def clusters(self, name: str) -> Sequence[str]:
        return sorted(
            {
                answer.claim.tags[MachineTags.CLUSTER_ID]
                for answer in self._asking.look_lately(self._targets).values()
                if isinstance(answer, Facts)
                and answer.claim is not None
                and answer.claim.tags.get(OWNER_TAG) == self._owner_id
                and answer.claim.tags.get(MachineTags.CLUSTER_NAME) == name
            }
        )

    def foreign(self, name: str) -> Sequence[ForeignCluster]:
        answers = self._asking.look_lately(self._targets).values()
        taken = (answer.claim for answer in answers if isinstance(answer, Facts) and answer.claim)
        of_name = (c.machine() for c in taken if c.tags.get(MachineTags.CLUSTER_NAME) == name)
        return ownership.foreign(of_name, self._ownership.owner)

    def settings(self) -> Mapping[str, str]:
        return {**self._settings, **self._ownership.owner.settings()}

    def for_head(self) -> ForHead:
        files = tuple(
            (name, str(self._folder / name))
            for name in ("ssh_key", "known_hosts")
            if (self._folder / name).exists()
        )
        return ForHead({**self._ownership.owner.settings(), "folder": f"~/{claims.FOLDER}"}, files)

    @property
    def head_extras(self) -> Sequence[str]:
        return ("ssh",)

    def targets(self, node_types: Sequence[NodeType]) -> Mapping[str, Target]:
        answer = self._asking.examine_lately([self._head])[self._head]
        if self._any_python or not isinstance(answer, Examined):
            return {}
        with contextlib.suppress(Unsupported):
            return {self._head_type: answer.target()}  # `check` compares the others with it
        return {}

    def default_resources(self) -> dict[str, float]:
        return {}  # each machine says itself what it has

    # ------------------------------------------------------------ inside

    @property
    def _owner_id(self) -> str:
        return self._ownership.owner.id

    @property
    def _mark(self) -> str:
        """Of the cluster and not of one life of it: a key that an interrupted `up` left behind goes as well."""
        return f"clusterctl:{self._owner_id}:{self._cluster_name}"

    def _target(self, entry: str) -> SshTarget:
        """The machine of an entry of the spec."""
        if self._on_head:
            return hosts.addressed(entry, self._base, self._spec.addresses)
        return hosts.parse(entry, self._base, self._config)

    def _remembered(self, claim: Claim) -> SshTarget:
        """A machine that the spec may name no more."""
        target = hosts.parse(claim.entry, self._base)
        if hosts.name_of(target) == claim.host:
            return self._target(claim.entry)
        # The head knows by its address what only the operator's configuration knows by its name.
        if self._on_head:
            return replace(target, name=claim.host)
        return self._target(f"{target.user}@{claim.host}" if target.user else claim.host)

    def _name(self, target: SshTarget) -> str:
        return hosts.name_of(target)

    def _is_ours(self, claim: Claim) -> bool:
        return claim.tags.get(MachineTags.CLUSTER_ID) == self._cluster_id

    def _may_be_taken(self, claim: Claim) -> bool:
        """By `up`, which ends an earlier life of the cluster that only its tags tell of."""
        tags = claim.tags
        is_earlier = (tags.get(OWNER_TAG), tags.get(MachineTags.CLUSTER_NAME)) == (
            self._owner_id,
            self._cluster_name,
        )
        return is_earlier or self._is_ours(claim)

    def _eligible(self, node_type: NodeType) -> Sequence[str]:
        """The workers' machines that may be of the type, in the order of the spec."""
        config = _node_config(node_type)
        only = {self._name(hosts.parse(text, SshTarget("", ""))) for text in config.hosts}
        return [name for name in self._entries if name != self._head and (not only or name in only)]

    def _misnamed(self, node_type: NodeType) -> Sequence[Problem]:
        try:
            config = _node_config(node_type)
        except Config as error:
            return [Problem(str(error), "Correct node_config of the type.")]
        return [
            Problem(
                f"node type {node_type.name}: {text} is none of provider.workers",
                "Correct node_config.hosts of the type.",
            )
            for text in config.hosts
            if self._name(hosts.parse(text, SshTarget("", ""))) not in self._named
        ]

    def _draft(self, request: LaunchRequest, index: int, name: str, facts: Facts) -> Claim:
        life = f"{self._cluster_id}/{request.instance_ids[index]}/{time.time_ns()}"
        unique = hashlib.sha256(life.encode()).hexdigest()
        machine_id = claims.id_on(name, unique[:6])
        return Claim(
            id=machine_id,
            host=name,
            entry=self._spec.addresses.get(self._entries[name], self._entries[name]),
            hostname=facts.hostname,
            node_type=request.node_type.name,
            tags={
                **request.tags_of(index),
                MachineTags.CLUSTER_ID: self._cluster_id,
                **self._ownership.owner.tags(),
            },
            launched_s=time.time(),
            address=facts.address,
            home=facts.home,
            path=facts.path,
            session_dir=session_dir(self._cluster, request.node_type.name, facts.home, unique[:8]),
        )

    def _take(self, drafts: Mapping[str, Claim], target: SshTarget) -> bool:
        """Whether the machine is ours now; somebody else may have been faster."""
        draft = drafts[self._name(target)]
        command, env = claims.take(draft)
        result = tell(target, command, env)
        try:
            holds = msgspec.json.decode(result.output, type=Claim)
        except msgspec.MsgspecError:
            raise Config(f"{draft.host} cannot be taken: {result.output.strip()[-500:]}") from None
        if holds.hostname != draft.hostname:
            raise Config(
                f"{draft.host} shares its home directory with {holds.hostname}, which is taken: give the user of the "
                "machines a home directory on each"
            )
        return holds.id == draft.id

    def _give_back(self, machine_id: str, target: SshTarget) -> None:
        claim = self._memory.machines().get(self._name(target))
        if claim is None or claim.id != machine_id:
            found = self._asking.look([self._name(target)])[self._name(target)]
            if isinstance(found, Exception):
                raise found
            claim = found.claim
        if claim is None or claim.id != machine_id or not self._is_ours(claim):
            raise NotFound(f"there is no machine {machine_id}")
        if self._on_head and self._name(target) == self._head:
            give_back_own(claim, self._spec.python)
        command, env = claims.give_back(claim, self._spec.python)
        result = SshShell(target).ask(command, env=env, timeout_s=_END_S)
        if result.exit_status == claims.NOT_OURS:
            raise NotFound(f"there is no machine {machine_id}")
        if result.exit_status:
            raise Transient(f"{machine_id} cannot be given back yet: {result.output.strip()[-500:]}", 1.0)

    @contextlib.contextmanager
    def _giving_back(self, names: Iterable[str]) -> Iterator[None]:
        """While it lasts, `create` waits for these machines instead of refusing."""
        ended = threading.Event()
        with self._lock:
            self._ending.update(dict.fromkeys(names, ended))
        try:
            yield
        finally:
            with self._lock:
                self._ending = {name: event for name, event in self._ending.items() if event is not ended}
            ended.set()

    def _await_given_back(self, names: Iterable[str]) -> None:
        """Waits for those that are given back now: a replacement may take the machine of the node that it replaces."""
        with self._lock:
            ending = {self._ending[name] for name in names if name in self._ending}
        deadline = time.monotonic() + _END_S
        for event in ending:
            event.wait(max(0.0, deadline - time.monotonic()))

    def _why_not(self, name: str, facts: Facts | Exception) -> str:
        """Why a machine cannot be taken, or ""."""
        if isinstance(facts, Exception):
            return f"{facts}"
        if facts.claim is not None:
            return f"{name} belongs to {facts.claim.cluster}"
        return str(wrong_address(name, facts.address, name == self._head, len(self._named) == 1) or "")


def _never_reached(answer: object) -> bool:
    """Whether nothing was done on the machine: it was silent before it was asked, or let nobody in."""
    return isinstance(answer, ShellRefused | ShellAuthFailed | Silent)


def _run(target: SshTarget, command: str, env: Mapping[str, str]) -> None:
    result = tell(target, command, env)
    if result.exit_status:
        raise ShellError(f"{target}: {result.output.strip()[-500:]}")


def _node_config(node_type: NodeType) -> SshNodeConfig:
    try:
        return msgspec.convert(dict(node_type.node_config), SshNodeConfig)
    except msgspec.ValidationError as error:
        raise Config(f"node_config of {node_type.name}: {error}") from error


PROVIDER = SshMachines
