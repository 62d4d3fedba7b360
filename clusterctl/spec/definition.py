"""The cluster spec as types. The reader, the JSON Schema and the documentation all come from these classes.

Keys keep the names of Ray's cluster YAML where Ray has them. The keys of `provider` are in the providers' packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

from msgspec import Meta, field

from . import provider_names
from .kinds import Amount, Count, EnvString, Port, ProviderConfig, Seconds, Struct

if TYPE_CHECKING:
    AnyProvider = ProviderConfig
else:
    AnyProvider = Union[provider_names.configs()]

ClusterName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$",
        description="What the cluster is called: letters, digits, - and _, at most 63.",
    ),
]


class Auth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SSH users, keys and jump hosts. The local provider needs none of it."""

    ssh_user: EnvString = ""
    ssh_private_key: EnvString = ""
    ssh_public_key: EnvString = ""
    ssh_config: Annotated[
        str,
        Meta(
            description="SSH configuration file of this machine. Default: ~/.ssh/config. none: no file.",
            extra={"env": True},
        ),
    ] = ""
    ssh_proxy_command: Annotated[
        str,
        Meta(
            description="A command whose stdin and stdout connect to a machine; %h, %p and %r are its host, port and "
            "user.",
            extra={"env": True},
        ),
    ] = ""
    ssh_proxy_jump: Annotated[
        str,
        Meta(
            description="Jump hosts, as USER@HOST:PORT, separated by commas.",
            extra={"env": True},
        ),
    ] = ""


class EngineRuntime(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="engine"
):
    """Our engine, in the version of the launcher, which uploads it."""

    name: ClassVar[str] = "the engine"
    is_uploaded: ClassVar[bool] = True
    """The launcher uploads it to the machines, which need nothing but Python."""
    has_our_head: ClassVar[bool] = True
    """A daemon of ours runs on the head: it serves the whole API, keeps files in sync and can end the cluster."""
    autoscales: ClassVar[bool] = True
    """The head makes and ends workers. Otherwise `up` does, and there are always min_workers."""
    runs_start_commands: ClassVar[bool] = False
    """`ray start` commands are run as they are. Otherwise their options are read, and our own command is run."""
    shares_machines: ClassVar[bool] = True
    """Several nodes can run on one machine."""
    has_sockets_apart: ClassVar[bool] = True
    """Its Unix sockets, whose paths must be short, are in another folder than its files."""

    def files(self) -> Mapping[str, str]:
        """Local files that it names, by key."""
        return {}

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with it: key and message."""
        yield from ()


class RayRuntime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="ray"):
    """Ray itself. Machines are made, set up and terminated as for the engine; features of the engine are missing."""

    name: ClassVar[str] = "Ray"
    is_uploaded: ClassVar[bool] = False
    has_our_head: ClassVar[bool] = False
    autoscales: ClassVar[bool] = False
    runs_start_commands: ClassVar[bool] = True
    shares_machines: ClassVar[bool] = False
    has_sockets_apart: ClassVar[bool] = False

    version: Annotated[
        str, Meta(description="Version that pip installs into its own environment. Default: the newest.")
    ] = ""
    python: Annotated[
        str,
        Meta(
            description="A Python on the machines that has Ray; nothing is installed. Default with docker: python.",
            extra={"env": True},
        ),
    ] = ""
    wheelhouse: Annotated[
        str,
        Meta(
            description="Local folder with Ray's wheels, for machines without internet.", extra={"env": True}
        ),
    ] = ""

    def files(self) -> Mapping[str, str]:
        """See `EngineRuntime.files`."""
        return {"runtime.wheelhouse": self.wheelhouse}

    def problems(self) -> Iterator[tuple[str, str]]:
        """See `EngineRuntime.problems`."""
        if self.python and (self.version or self.wheelhouse):
            yield "python", "with runtime.python nothing is installed; remove it, or the other key"
        if self.version and not re.fullmatch(r"[0-9][0-9A-Za-z.+]*", self.version):
            yield "version", f"'{self.version}' is not a version, such as 2.60.0"


class Docker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Containers on the machines."""

    image: EnvString = ""
    head_image: EnvString = ""
    worker_image: EnvString = ""
    container_name: EnvString = ""
    pull_before_run: bool = True
    run_options: list[str] = []
    head_run_options: list[str] = []
    worker_run_options: list[str] = []
    disable_automatic_runtime_detection: bool = False
    disable_shm_size_detection: bool = False
    use_podman: bool = False


class NodeType(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of machine."""

    resources: Annotated[
        dict[str, Amount],
        Meta(description="Resources of a node, as {CPU: 4, GPU: 1, memory: 8e9}. Default: all that it has."),
    ] = {}
    labels: Annotated[dict[str, str], Meta(description="Labels of the nodes, for label selectors.")] = {}
    node_config: Annotated[dict[str, Any], Meta(description="The provider's own settings.")] = {}
    min_workers: Annotated[Count, Meta(description="Workers of this type that always run.")] = 0
    max_workers: Annotated[
        Count | None, Meta(description="Most workers of this type. Default: the cluster's max_workers.")
    ] = None
    idle_timeout_s: Annotated[
        Seconds | None,
        Meta(
            description="Remove a worker after this idle time. Default: the cluster's idle_timeout_minutes."
        ),
    ] = None
    spot: Annotated[
        bool, Meta(description="Prefer interruptible machines; use others if there are none.")
    ] = False
    zones: Annotated[
        list[str], Meta(description="Only these zones, the first one preferred. Default: the provider's.")
    ] = []
    max_price: Annotated[
        Amount | None, Meta(description="Highest price per machine and hour. Default: no limit.")
    ] = None
    docker: Docker | None = None
    node_dir: Annotated[
        str, Meta(description="Replaces the cluster's, for nodes of this type.", extra={"env": True})
    ] = ""
    initialization_commands: Annotated[
        list[str] | None, Meta(description="Replaces the cluster's, for workers of this type.")
    ] = None
    worker_setup_commands: Annotated[
        list[str] | None,
        Meta(description="Replaces the cluster's setup_commands and worker_setup_commands, for this type."),
    ] = None


class Ports(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ports of the head. 0: any free port."""

    control: Port = 0
    api: Port = 0


class DisruptedBy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many workers may be drained at the same time for one reason."""

    idle: Annotated[Count | None, Meta(description="Idle workers. Default: any number.")] = None
    outdated: Annotated[
        Count | None,
        Meta(
            description="Workers of an old configuration, including those whose replacement has not joined yet."
        ),
    ] = None
    consolidation: Annotated[
        Count | None, Meta(description="Workers whose work fits elsewhere; see consolidation.")
    ] = None
    surplus: Annotated[Count | None, Meta(description="Workers beyond max_workers.")] = None


class Budgets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much the autoscaler may spend, and how many workers it may drain at the same time."""

    max_hourly_price: Annotated[
        Amount | None,
        Meta(description="Highest price of all workers together per hour. Default: no limit."),
    ] = None
    max_disrupted: Annotated[
        Count,
        Meta(description="How many workers may be drained at the same time for reasons other than idleness."),
    ] = 10
    max_disrupted_by: Annotated[
        DisruptedBy, Meta(description="Limits for single reasons, within max_disrupted (except idle).")
    ] = DisruptedBy()


class Consolidation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drains little used workers whose work fits on other nodes, or on a cheaper machine."""

    after_minutes: Annotated[
        Amount, Meta(description="The work must have fitted elsewhere for this long.")
    ] = 10.0
    max_used: Annotated[
        float,
        Meta(ge=0, le=1, description="Leave workers alone that are used more than this share, from 0 to 1."),
    ] = 0.5


class Autostop(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster stops by itself when it is idle."""

    idle_minutes: Annotated[
        Amount,
        Meta(description="Stop after this time without jobs, programs, waiting work, logins and setups."),
    ]
    down: Annotated[
        bool,
        Meta(description="End the cluster for good instead of keeping the head's machine for the next `up`."),
    ] = False


class ClusterSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster."""

    cluster_name: ClusterName
    provider: AnyProvider
    available_node_types: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")], NodeType],
        Meta(min_length=1, description="The kinds of machines, by name."),
    ]
    head_node_type: Annotated[str, Meta(description="The node type of the head.")]
    max_workers: Annotated[
        Count | None,
        Meta(description="Most workers of all types. Default: the sum of the types' limits."),
    ] = None
    upscaling_speed: Annotated[
        float,
        Meta(
            gt=0,
            description="Every 5 s, start at most this many times the running nodes of a type (minimum 5).",
        ),
    ] = 1.0
    idle_timeout_minutes: Annotated[Amount, Meta(description="Remove a worker after this idle time.")] = 5.0
    budgets: Budgets = Budgets()
    consolidation: Annotated[
        Consolidation | None,
        Meta(description="Remove busy workers whose work fits elsewhere. Default: off."),
    ] = None
    autostop: Annotated[
        Autostop | None, Meta(description="Stop the cluster when it is idle. Default: never.")
    ] = None
    max_concurrent_jobs: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="How many jobs run at once; others wait. Default: depends on the head's CPUs and memory."
        ),
    ] = None
    ports: Ports = Ports()
    node_dir: Annotated[
        str,
        Meta(
            description="Folder on every machine for the node's state, logs, environments and spilled objects: a local "
            "disk that survives a reboot. Default: ~/.clusterctl-node.",
            extra={"env": True},
        ),
    ] = ""
    auth: Auth = Auth()
    docker: Docker | None = None
    runtime: Annotated[
        EngineRuntime | RayRuntime, Meta(description="What runs on the machines. Default: our engine.")
    ] = EngineRuntime()
    file_mounts: Annotated[
        dict[str, EnvString],
        Meta(description="Path on every node -> local file or folder that is copied to it."),
    ] = {}
    cluster_synced_files: Annotated[
        list[str],
        Meta(description="Files and folders of the head that every new worker gets, at the same path."),
    ] = []
    file_mounts_sync_continuously: Annotated[
        bool, Meta(description="Send changes in the head's file_mounts to running workers within seconds.")
    ] = False
    rsync_exclude: Annotated[
        list[str],
        Meta(description="Patterns, as of rsync's --exclude, of files in file_mounts that are not copied."),
    ] = []
    rsync_filter: Annotated[
        list[str],
        Meta(description="Names of ignore files in file_mounts, such as .gitignore."),
    ] = field(default_factory=lambda: [".gitignore"])
    ready_command: Annotated[
        str,
        Meta(description="Retried on a new machine until it succeeds, before setup starts."),
    ] = ""
    initialization_commands: Annotated[
        list[str], Meta(description="Run first on every node, before files are copied.")
    ] = []
    setup_commands: Annotated[list[str], Meta(description="Run on every node after files were copied.")] = []
    head_setup_commands: Annotated[list[str], Meta(description="Run on the head after setup_commands.")] = []
    worker_setup_commands: Annotated[list[str], Meta(description="Run on workers after setup_commands.")] = []
    head_start_ray_commands: Annotated[
        list[str], Meta(description="How Ray is started on the head; for the engine see docs/from-ray.md.")
    ] = []
    worker_start_ray_commands: Annotated[
        list[str], Meta(description="How Ray is started on workers; for the engine see docs/from-ray.md.")
    ] = []
    metadata: Annotated[dict[str, Any], Meta(description="Your own notes; ignored.")] = {}
