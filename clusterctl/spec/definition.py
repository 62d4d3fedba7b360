"""The cluster spec as types. The reader, the JSON Schema and the documentation all come from these classes.

Keys keep the names of Ray's cluster YAML where Ray has them. What belongs to one platform is in `platforms`.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from .kinds import Amount, Count, EnvString, Port, Seconds, Struct
from .platforms.aws import AwsProvider
from .platforms.external import ExternalProvider
from .platforms.gcp import GcpProvider
from .platforms.local import LocalProvider
from .platforms.ssh import SshProvider

ClusterName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$",
        description="What the cluster is called: letters, digits, - and _, at most 63.",
    ),
]


class Auth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How machines are entered. The local provider needs none of it."""

    ssh_user: EnvString = ""
    ssh_private_key: EnvString = ""
    ssh_public_key: EnvString = ""
    ssh_config: Annotated[
        str,
        Meta(
            description="The SSH configuration by which this machine enters others. Default: ~/.ssh/config. none: no "
            "file.",
            extra={"env": True},
        ),
    ] = ""
    ssh_proxy_command: Annotated[
        str,
        Meta(
            description="A command whose input and output lead to a machine; %h, %p and %r are its host, port "
            "and user.",
            extra={"env": True},
        ),
    ] = ""
    ssh_proxy_jump: Annotated[
        str,
        Meta(
            description="Reach the machines through this one, as USER@HOST:PORT; several, separated by commas.",
            extra={"env": True},
        ),
    ] = ""


class EngineRuntime(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="engine"
):
    """Our engine, in the version of the launcher, which brings it along."""


class RayRuntime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="ray"):
    """Ray itself. Machines are made, set up and ended as for the engine; what only the engine has is not there."""

    version: Annotated[
        str, Meta(description="Installed by pip into an environment of its own. Default: the newest.")
    ] = ""
    python: Annotated[
        str,
        Meta(
            description="A Python of the machines that has Ray: nothing is installed. Default with docker: python.",
            extra={"env": True},
        ),
    ] = ""
    wheelhouse: Annotated[
        str,
        Meta(
            description="A folder here with Ray's wheels, for machines without internet.", extra={"env": True}
        ),
    ] = ""


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
        Meta(description="What a node brings, as {CPU: 4, GPU: 1, memory: 8e9}. Default: all it has."),
    ] = {}
    labels: Annotated[dict[str, str], Meta(description="Labels of the nodes, for label selectors.")] = {}
    node_config: Annotated[dict[str, Any], Meta(description="The provider's own settings.")] = {}
    min_workers: Annotated[Count, Meta(description="Workers of this type that always run.")] = 0
    max_workers: Annotated[
        Count | None, Meta(description="The most workers of this type. Default: the cluster's max_workers.")
    ] = None
    idle_timeout_s: Annotated[
        Seconds | None,
        Meta(description="A worker idle this long is removed. Default: idle_timeout_minutes of the cluster."),
    ] = None
    spot: Annotated[
        bool, Meta(description="Interruptible machines first, and others when there are none.")
    ] = False
    zones: Annotated[
        list[str], Meta(description="Only in these zones, the first one first. Default: the provider's.")
    ] = []
    max_price: Annotated[
        Amount | None, Meta(description="The most that a machine may cost per hour. Default: no limit.")
    ] = None
    docker: Docker | None = None
    node_dir: Annotated[
        str, Meta(description="Instead of the cluster's, for nodes of this type.", extra={"env": True})
    ] = ""
    initialization_commands: Annotated[
        list[str] | None, Meta(description="Instead of the cluster's, for workers of this type.")
    ] = None
    worker_setup_commands: Annotated[
        list[str] | None,
        Meta(description="Instead of the cluster's setup_commands and worker_setup_commands, for this type."),
    ] = None


class Ports(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the head listens. 0: any free port."""

    control: Port = 0
    api: Port = 0


class DisruptedBy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many workers may be drained at the same time for one cause."""

    idle: Annotated[Count | None, Meta(description="Idle ones. Default: any number.")] = None
    outdated: Annotated[
        Count | None,
        Meta(description="Those of an old configuration, replacements that are not there included."),
    ] = None
    consolidation: Annotated[
        Count | None, Meta(description="Those whose work has room elsewhere; see consolidation.")
    ] = None
    surplus: Annotated[Count | None, Meta(description="Those beyond max_workers.")] = None


class Budgets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the autoscaler may spend, and how much of the cluster it may take out of work at the same time."""

    max_hourly_price: Annotated[
        Amount | None,
        Meta(description="The most that all workers together cost per hour. Default: no limit."),
    ] = None
    max_disrupted: Annotated[
        Count,
        Meta(description="How many workers are drained at the same time for another reason than idleness."),
    ] = 10
    max_disrupted_by: Annotated[
        DisruptedBy, Meta(description="Limits for single causes, within max_disrupted (but for idle).")
    ] = DisruptedBy()


class Consolidation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Little used workers are drained when what they run has room on other nodes, or on a cheaper machine."""

    after_minutes: Annotated[Amount, Meta(description="It must have had room elsewhere for so long.")] = 10.0
    max_used: Annotated[
        float,
        Meta(ge=0, le=1, description="Workers of which more is used are left alone; a share, from 0 to 1."),
    ] = 0.5


class Autostop(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster stops by itself when nobody has used it for long."""

    idle_minutes: Annotated[
        Amount,
        Meta(description="No job, program, waiting work, log-in or set-up for so long."),
    ]
    down: Annotated[
        bool, Meta(description="It ends for good, instead of keeping the head's machine for the next `up`.")
    ] = False


class ClusterSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster."""

    cluster_name: ClusterName
    provider: LocalProvider | SshProvider | AwsProvider | GcpProvider | ExternalProvider
    available_node_types: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")], NodeType],
        Meta(min_length=1, description="The kinds of machines, by name."),
    ]
    head_node_type: Annotated[str, Meta(description="The node type of the head.")]
    max_workers: Annotated[
        Count | None,
        Meta(description="The most workers of all types. Default: the sum of the types' limits."),
    ] = None
    upscaling_speed: Annotated[
        float,
        Meta(
            gt=0, description="How many nodes of a type are started at once, as a multiple of those that run."
        ),
    ] = 1.0
    idle_timeout_minutes: Annotated[Amount, Meta(description="A worker idle this long is removed.")] = 5.0
    budgets: Budgets = Budgets()
    consolidation: Annotated[
        Consolidation | None,
        Meta(description="Give up busy workers whose work has room elsewhere. Default: no."),
    ] = None
    autostop: Annotated[
        Autostop | None, Meta(description="Stop when nobody has used it for long. Default: it stays.")
    ] = None
    max_concurrent_jobs: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How many jobs run at once; others wait. Default: by the head's CPUs and memory."),
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
        Meta(description="Path on every node -> file or folder here that is copied to it."),
    ] = {}
    cluster_synced_files: Annotated[
        list[str],
        Meta(description="Files and folders of the head that every new worker gets, in the same place."),
    ] = []
    file_mounts_sync_continuously: Annotated[
        bool, Meta(description="What changes in the head's file_mounts reaches running workers in seconds.")
    ] = False
    rsync_exclude: Annotated[
        list[str],
        Meta(description="What of file_mounts stays behind: patterns as rsync's --exclude takes them."),
    ] = []
    rsync_filter: Annotated[
        list[str],
        Meta(description="Names of files in file_mounts that say, for their folder, what stays behind."),
    ] = field(default_factory=lambda: [".gitignore"])
    ready_command: Annotated[
        str,
        Meta(description="Asked again on a new machine until it succeeds, before anything is done there."),
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
    metadata: Annotated[dict[str, Any], Meta(description="Your own notes; nothing reads them.")] = {}
