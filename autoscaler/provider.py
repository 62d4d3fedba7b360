"""What the autoscaler and the launcher ask of a platform: machines that are offered, created, listed and
terminated.

A provider knows one platform and one cluster (it is constructed with the cluster's id and its own settings).
All its methods block; the autoscaler calls them in threads and gives every call a deadline. A provider keeps
no state of its own that matters: what exists is what `list` says, and what belongs to whom is in the
machines' tags.

    ProviderError
     +-- Capacity     the platform has no such machine now: penalise the offer, try the next
     +-- Quota        the account may not have more: penalise the offer, tell the operator
     +-- Auth         credentials are missing, expired or too weak
     +-- Config       the request can never work as written
     +-- NotFound     the machine is not there (any more)
     +-- Transient    try the same again after `retry_after_s`
          +-- Throttled    too many calls: all calls wait so long
    ShellError
     +-- ShellRefused     nobody listens (yet)
     |    +-- PortClosed  at the port to which a tunnel should lead
     +-- ShellTimedOut    no answer (wrong address, firewall, still booting)
     +-- ShellAuthFailed  it answered and does not accept us: waiting will not help
     +-- ShellLost        the connection broke while something ran
    SetupError        a step of a node's setup failed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from runtime._core.labels import MARKET_TYPE, NODE_GROUP, ZONE

# ---------------------------------------------------------------- errors


class ProviderError(Exception):
    """A platform refused or failed. `str()` is one sentence that says what to do next."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class Capacity(ProviderError):
    """The platform has no machine of this kind in this zone and market now."""


class Quota(ProviderError):
    """The account's limit is reached."""


class Auth(ProviderError):
    """Credentials are missing, expired or lack a permission."""


class Config(ProviderError):
    """The request is wrong and will stay wrong: an unknown image, a bad machine type."""


class NotFound(ProviderError):
    """The machine does not exist. For `terminate` that is success."""


class Transient(ProviderError):
    """The platform hiccuped (throttling, 5xx, a lost connection). The same call may be repeated."""

    def __init__(self, message: str, retry_after_s: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type[Transient], tuple[str, float]]:
        return type(self), (self.message, self.retry_after_s)


class Throttled(Transient):
    """The platform asks for fewer calls. Nothing was done; every call to it waits for `retry_after_s`."""


class ShellError(Exception):
    """A machine's shell could not be used."""


class ShellRefused(ShellError):
    """The machine is up and nobody listens there yet: worth waiting for."""


class PortClosed(ShellRefused):
    """The machine was entered, and nobody listens at the port to which a tunnel should lead."""


class ShellTimedOut(ShellError):
    """No answer at all within the time allowed."""


class CommandTimedOut(ShellTimedOut):
    """The machine answered, and a command ran there for longer than it may."""


class ShellAuthFailed(ShellError):
    """The machine answered and rejected our identity: waiting will not help."""


class ShellLost(ShellError):
    """The connection broke while something ran. That says nothing of the machine: the same may be tried again."""


class SetupError(Exception):
    """A step of a node's setup failed.

    Attributes:
        step: the step's name, as the setup log shows it.
        reason: what went wrong, one line.
    """

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(step, reason)
        self.step = step
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}"


# ---------------------------------------------------------------- what is asked for


@dataclass(frozen=True, slots=True)
class NodeType:
    """A kind of machine the operator allows.

    Attributes:
        resources: what a node of this type brings, as users count it ({"CPU": 4, "memory": 2**33}).
        labels: what its nodes are labelled with.
        min_workers: kept running always. The head is no worker and does not count.
        max_workers: never exceeded.
        idle_timeout_s: idle longer than this and not needed: removed. None: the cluster's default.
        node_config: the platform's own settings, passed on unread.
        spot: ask for interruptible machines first and fall back to on-demand ones.
        zones: only these, in order of preference. Empty: any.
        max_price: per machine and hour; dearer offers are never taken. None: no limit.
        setup: what the node's setup needs, passed on unread to `NodeSetup`.
    """

    name: str
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    min_workers: int = 0
    max_workers: int = 0
    idle_timeout_s: float | None = None
    node_config: Mapping[str, Any] = field(default_factory=dict)
    spot: bool = False
    zones: tuple[str, ...] = ()
    max_price: float | None = None
    setup: Mapping[str, Any] = field(default_factory=dict)


ON_DEMAND = "on-demand"
SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a machine of a type.

    Attributes:
        zone: "" where the platform has none.
        market: `ON_DEMAND` or `SPOT`.
        price: per machine and hour; 0.0 when it costs nothing or is unknown.
        resources: what such a machine brings, as users count it. Empty: what the node type says.
    """

    zone: str = ""
    market: str = ON_DEMAND
    price: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)


def machine_labels(node_type: NodeType, zone: str, market: str) -> dict[str, str]:
    """The labels of a node on a machine of a type: what the type says, and where the machine came from."""
    found = {NODE_GROUP: node_type.name, ZONE: zone, MARKET_TYPE: market}
    return {**{key: value for key, value in found.items() if value}, **node_type.labels}


class MachineTags:
    """The tags that every machine of ours carries. Machines without `CLUSTER_ID` are never touched."""

    CLUSTER_ID = "clusterctl-cluster-id"
    CLUSTER_NAME = "clusterctl-cluster-name"
    ROLE = "clusterctl-role"  # HEAD | WORKER
    INSTANCE_ID = "clusterctl-instance-id"
    NODE_TYPE = "clusterctl-node-type"
    CONFIG_HASH = "clusterctl-config-hash"
    HASH_VERSION = "clusterctl-hash-version"
    TOKEN = "clusterctl-token"

    HEAD = "head"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Create `count` equal machines.

    Attributes:
        token: makes the call safe to repeat: a second `create` with the same token creates nothing that the
            first one did create, and returns it.
        instance_ids: one per machine; machine i carries `instance_ids[i]` as its tag `INSTANCE_ID`.
        tags: all other tags of every machine.
        join_tokens: for a platform whose machines join by themselves (`Capabilities.machines_join`), what machine i
            joins with (`clusterctl start` reads it from the environment variable CLUSTERCTL_JOIN_TOKEN). As secret as
            the cluster's secret.
    """

    token: str
    node_type: NodeType
    count: int
    offer: Offer
    tags: Mapping[str, str]
    instance_ids: tuple[str, ...]
    join_tokens: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.count != len(self.instance_ids) or self.count < 1:
            raise ValueError(f"{self.count} machines need as many instance ids, got {len(self.instance_ids)}")

    def tags_of(self, index: int) -> dict[str, str]:
        """All tags of machine `index`."""
        return {
            **self.tags,
            MachineTags.INSTANCE_ID: self.instance_ids[index],
            MachineTags.NODE_TYPE: self.node_type.name,
            MachineTags.TOKEN: self.token,
        }


# ---------------------------------------------------------------- what there is


class MachineState(Enum):
    """What the platform says of a machine."""

    PENDING = "PENDING"  # exists, boots
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # on its way to STOPPED or GONE
    STOPPED = "STOPPED"  # does not run, still exists (and may still cost)
    GONE = "GONE"  # does not exist any more; platforms that list such machines for a while say so


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as the platform lists it.

    Attributes:
        address: where the other machines of the cluster reach it; "" while unknown.
        public_address: where the operator reaches it; "" when there is none.
        launched_s: unix time of its creation.
        unreachable: why it does not answer now; "": it does, or that is not known. The rest is as when it last did.
        unwanted: why it is to be given up; "": it is not. What runs there may end before.
    """

    id: str
    state: MachineState
    node_type: str
    tags: Mapping[str, str]
    address: str = ""
    public_address: str = ""
    zone: str = ""
    market: str = ON_DEMAND
    launched_s: float = 0.0
    unreachable: str = ""
    unwanted: str = ""

    @property
    def instance_id(self) -> str:
        """The autoscaler's name of the machine; "" for a machine that carries none."""
        return self.tags.get(MachineTags.INSTANCE_ID, "")

    @property
    def address_for_us(self) -> str:
        """Where the operator reaches it."""
        return self.public_address or self.address

    @property
    def is_head(self) -> bool:
        return self.tags.get(MachineTags.ROLE) == MachineTags.HEAD


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What came of a `LaunchRequest`. Partial success is normal: `errors` has one entry per machine that is
    missing, or one for all of them."""

    machines: tuple[Machine, ...] = ()
    errors: tuple[ProviderError, ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do.

    Attributes:
        stop_start: stopped machines can be started again.
        spot: it has interruptible machines.
        prices: its machines cost money; its offers carry prices, as far as it knows them.
        price_source: where those prices come from and how old they are, in words.
        forward_ports: `Shell.forward` is needed and works (machines are not reachable directly).
        listing_lag_s: how long after a change `list` may still show the old picture. A machine that is absent
            from listings counts as gone only after that time.
        max_per_create: the most machines one `create` may ask for.
        shutdown_ends: a machine whose system is shut down from inside costs no more. Workers do that when they have
            been without their head for long.
        restarts_head: the head's machine gets a keeper process and a crontab line, which restart the head after a
            crash and a reboot. False where machines share the crontab of a host, or end with their node.
        machines_join: workers' machines bring the runtime, e.g. in an image, and join by themselves with what `create`
            gives them. Nothing is installed on them, and they need no shell for that.
    """

    stop_start: bool = False
    spot: bool = False
    prices: bool = False
    price_source: str = ""
    forward_ports: bool = False
    listing_lag_s: float = 0.0
    max_per_create: int = 100
    shutdown_ends: bool = False
    restarts_head: bool = True
    machines_join: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Something `check` found. `fatal`: nothing can be launched before it is solved."""

    what: str
    advice: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.what}. {self.advice}" if self.advice else self.what


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` made or found: name -> value, to be shown ("network": "vpc-1")."""

    details: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- protocols


@dataclass(frozen=True, slots=True)
class CommandResult:
    """`output` is stdout and stderr together, in order; the last MiB where there is more."""

    exit_status: int
    output: str


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of this process that a command reads from and writes to. `stdin` None: it reads nothing."""

    stdin: int | None
    stdout: int
    stderr: int


class Shell(Protocol):
    """A way into one machine. Belongs to one thread at a time; every method may raise `ShellError`."""

    def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_output: Callable[[str], None] | None = None,
        stdin: Iterable[bytes] | None = None,
    ) -> CommandResult:
        """Runs `command` with the machine's POSIX shell, without a terminal, and waits.

        Args:
            env: added to the command's environment; like the command, never visible in the machine's process list.
            timeout_s: the command and its children are killed after it, and `ShellTimedOut` is raised.
            on_output: gets every line (without its newline) as it appears.
            stdin: what the command reads; it is gone through in another thread. None: nothing. What it raises is
                raised here.
        """
        ...

    def pipe(
        self,
        command: str,
        streams: Streams,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Runs `command` as `run` does, but connects it with `streams`, byte by byte; returns its exit status.

        Raises:
            BrokenPipeError: nobody reads `streams.stdout` any more; the command was killed.
        """
        ...

    def interactive(self, command: str | None = None, *, env: Mapping[str, str] | None = None) -> int:
        """Connects the caller's terminal with `command` (None: a log-in shell); returns its exit status.
        `env` as for `run`."""
        ...

    def forward(
        self, port: int, on_tunnel: Callable[[ShellError | None], None] | None = None
    ) -> AbstractContextManager[int]:
        """While the context lasts, a local loopback port (its value) leads to the machine's loopback
        `port`. Where that takes a tunnel, `on_tunnel` is told of every connection why it got none, or None."""
        ...

    def close(self) -> None:
        """Ends the connection. Repeating it does nothing."""
        ...


@runtime_checkable
class Provider(Protocol):
    """One platform, for one cluster. Every method may raise a `ProviderError`, is safe to repeat, and may be
    called from several threads at once."""

    @property
    def capabilities(self) -> Capabilities: ...

    def check(self, node_types: Sequence[NodeType]) -> list[Problem]:
        """Looks for what would make a launch fail (credentials, quota, images, settings). Changes nothing."""
        ...

    def prepare(self, node_types: Sequence[NodeType]) -> Prepared:
        """Makes what machines need around them: network, identities, keys. Idempotent."""
        ...

    def offers(self, node_type: NodeType) -> list[Offer]:
        """The ways to get such a machine, best first. Empty: none at all in the allowed zones and prices."""
        ...

    def create(self, request: LaunchRequest) -> LaunchResult:
        """Creates machines and returns without waiting for them to boot. Idempotent by `request.token`.

        What the platform refuses is in `LaunchResult.errors`. A raised `Transient` leaves open whether
        anything was
        created: the caller repeats with the same token.
        """
        ...

    def list(self) -> list[Machine]:
        """Every machine tagged with this cluster's id, head and stopped ones included."""
        ...

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        """Asks for the end of machines, for good. One entry per id; None: accepted. Only `list` proves the
        end."""
        ...

    def shell(self, machine: Machine) -> Shell:
        """A way into the machine. Does not connect yet."""
        ...

    def cleanup(self) -> None:
        """Removes what `prepare` made. Called when no machine is left."""
        ...


class NodeSetup(Protocol):
    """Turns a machine into a node: waits for its shell, installs, starts the node agent. Same code for head
    and workers."""

    def join_tokens(self, request: LaunchRequest) -> tuple[str, ...]:
        """What the machines of a request join with, where they do so by themselves. The same for the same request."""
        ...

    def run(self, machine: Machine, node_type: NodeType, instance_id: str, log_path: str) -> None:
        """Blocks until the agent was started there with `instance_id` and the node type's name, resources and
        labels.

        Safe to repeat on a machine that is half or wholly set up. Every step and its output is appended to
        `log_path`.

        Raises:
            SetupError: a step failed; the machine is of no use.
        """
        ...
