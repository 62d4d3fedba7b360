"""The environment variables that the engine reads. No other module of `runtime` reads one.

Names in capitals are constants of one value each; `settings.NAMESPACE.get()` reads RAY_NAMESPACE. docs/settings.md is
made of this table (`scripts/gen_settings.py`), `clusterctl/settings.py` adds the operator's.
"""

from __future__ import annotations

import os

from .variables import Section, Setting

_finding = Section(
    "Finding a cluster",
    "Read by programs (`init`, `JobSubmissionClient`) and by `clusterctl job`. On a cluster's nodes the launcher sets "
    "CLUSTERCTL_ADDRESS.",
)
CLUSTER_ADDRESS = _finding.text(
    "CLUSTERCTL_ADDRESS",
    'Cluster that `init()` and `init("auto")` join, before RAY_ADDRESS. Also the job API, when no other is named.',
    kind="host:port of a control store",
)
RAY_ADDRESS = _finding.text(
    "RAY_ADDRESS",
    'Cluster that `init()` and `init("auto")` join, and whose job API is used.',
    kind='host:port of a control store, "ray://host:port", "auto" or "local"',
)
API_SERVER_ADDRESS = _finding.text(
    "RAY_API_SERVER_ADDRESS",
    "Job API to use. Takes precedence over RAY_ADDRESS and over the address that a program or command gives.",
    kind="http:// address",
)
DASHBOARD_ADDRESS = _finding.text(
    "RAY_DASHBOARD_ADDRESS",
    "API of the head that the command `serve` uses when it is given no address.",
    kind="http:// address",
)
AUTH_TOKEN = _finding.text(
    "RAY_AUTH_TOKEN", "The cluster's secret, for a job API or a head (`ray://`) on another machine."
)
AUTH_TOKEN_PATH = _finding.text(
    "RAY_AUTH_TOKEN_PATH", "File with the cluster's secret, when RAY_AUTH_TOKEN is unset.", kind="path"
)
OPERATOR_HOME = _finding.text(
    "CLUSTERCTL_HOME",
    "The operator's state folder: records and secrets of known clusters.",
    kind="path",
    shown_default="~/.clusterctl",
)
CURRENT_CLUSTER = _finding.text(
    "CLUSTERCTL_CLUSTER",
    "Cluster for commands and programs that name none. Takes precedence over the terminal's current cluster.",
    kind="name of a cluster",
)

_program = Section("Programs", "Read by the process that calls `init`.")
NAMESPACE = _program.text(
    "RAY_NAMESPACE",
    "Namespace of the job, when neither `init` nor its `job_config` names one.",
    shown_default="one of the job's own",
)
AUTO_CONNECT = _program.flag(
    "RAY_ENABLE_AUTO_CONNECT",
    "The first call of the API connects the program, as `init()` does.",
    default=True,
)
LOG_TO_DRIVER = _program.flag(
    "RAY_LOG_TO_DRIVER",
    "Print the output of workers, when `init(log_to_driver=)` does not say.",
    default=True,
)
LOGGING_ENCODING = _program.text(
    "RAY_LOGGING_CONFIG_ENCODING",
    "Applies `LoggingConfig(encoding=...)`, when `init(logging_config=)` is not given.",
    kind="TEXT or JSON",
    shown_default="no logging configuration",
)
DEDUP_LOGS = _program.flag(
    "RAY_DEDUP_LOGS", "Print a line that several processes write only once, with a count.", default=True
)
DEDUP_WINDOW_S = _program.number(
    "RAY_DEDUP_LOGS_AGG_WINDOW_S", 5.0, "Seconds during which equal lines are counted as one."
)
DEDUP_ALLOW = _program.pattern("RAY_DEDUP_LOGS_ALLOW_REGEX", "Always print lines in which this is found.")
DEDUP_SKIP = _program.pattern("RAY_DEDUP_LOGS_SKIP_REGEX", "Never print lines in which this is found.")
SCHEDULER_EVENTS = _program.flag(
    "RAY_SCHEDULER_EVENTS",
    "Print why tasks, actors, placement groups and explicit requests wait.",
    default=True,
)
COLOR_PREFIX = _program.optional_flag(
    "RAY_COLOR_PREFIX",
    "Colour the prefix of workers' lines: 1 always, 0 never.",
    shown_default="only on a terminal",
)
TQDM_PATCH_PRINT = _program.flag(
    "RAY_TQDM_PATCH_PRINT",
    "While `experimental.tqdm_ray` shows progress bars, `print` writes above them.",
    default=True,
)
IGNORE_VERSION_MISMATCH = _program.flag(
    "RAY_IGNORE_VERSION_MISMATCH",
    "Join a cluster although its Python has another minor version than the program's.",
    default=False,
)
CLIENT_GRACE_S = _program.number(
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD",
    30.0,
    "Seconds that a remote driver (`ray://`) and its driver process wait for a broken connection to come back. The "
    "program and the head each read their own.",
)
USE_TLS = _program.flag(
    "RAY_USE_TLS", "Encrypt the connections of remote drivers. Programs and the head need it.", default=False
)
TLS_CERTIFICATE = _program.text(
    "RAY_TLS_SERVER_CERT", "Certificate of this side of such a connection.", kind="path of a PEM file"
)
TLS_KEY = _program.text("RAY_TLS_SERVER_KEY", "Key of the certificate.", kind="path of a PEM file")
TLS_CA = _program.text(
    "RAY_TLS_CA_CERT", "Certificate of the CA that both sides trust.", kind="path of a PEM file"
)
SUBMISSION_ID = _program.text(
    "CLUSTERCTL_SUBMISSION_ID",
    "Submitted job that this program belongs to. Set by the head for a job's processes.",
    shown_default="none",
)

_workers = Section(
    "Tasks and workers",
    "Read by programs and workers. `runtime_env={'env_vars': ...}` sets them for workers.",
)
TASK_MAX_RETRIES = _workers.whole(
    "RAY_TASK_MAX_RETRIES", 3, "`max_retries` of tasks without this option; -1: no limit.", minimum=-1
)
IGNORE_UNHANDLED_ERRORS = _workers.flag(
    "RAY_IGNORE_UNHANDLED_ERRORS", "Do not log errors of tasks whose results nobody reads.", default=False
)
OUT_OF_BAND_REFS = _workers.flag(
    "RAY_allow_out_of_band_object_ref_serialization",
    "Allow programs to pickle object references by themselves. Such an object is never freed.",
    default=True,
)
MAX_LINEAGE_BYTES = _workers.whole(
    "RAY_max_lineage_bytes",
    1 << 30,
    "Memory that a process may use for descriptions of finished tasks, from which lost results are rebuilt.",
    shown_default="1 GiB",
)
CREATION_SITES = _workers.flag(
    "RAY_record_ref_creation_sites",
    "Record where references are made: errors of lost objects, `ObjectRef.call_site()` and `list_objects` tell it.",
    default=False,
)
DEBUGGER_TIMEOUT_S = _workers.number(
    "RAY_DEBUGGER_TIMEOUT_S",
    600.0,
    "Seconds that `util.rpdb.set_trace` waits for a debugger before the program continues.",
)
OMP_THREADS = _workers.text(
    "OMP_NUM_THREADS",
    "Threads of numerical libraries in a worker.",
    kind="whole number",
    shown_default="the CPUs of the task, at least 1",
)

_devices = Section(
    "Accelerators",
    "A node offers the devices that these variables show its agent. In workers the engine sets them to the devices of "
    "the task.",
)
VISIBLE_DEVICES = _devices.family(
    "{}",
    (
        "CUDA_VISIBLE_DEVICES",
        "TPU_VISIBLE_CHIPS",
        "ASCEND_RT_VISIBLE_DEVICES",
        "HABANA_VISIBLE_MODULES",
        "NEURON_RT_VISIBLE_CORES",
        "RBLN_DEVICES",
        "FURIOSA_DEVICES",
        "QBRUNTIME_VISIBLE_DEVICES",
        "TT_VISIBLE_DEVICES",
    ),
    lambda name, _: _devices.optional_text(
        name,
        "Devices that the process may use.",
        kind="ids, separated by commas",
        shown_default="all devices",
    ),
)
KEEP_VISIBLE_DEVICES = _devices.family(
    "{}",
    (
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS",
        "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES",
        "RAY_EXPERIMENTAL_NOSET_NEURON_RT_VISIBLE_CORES",
        "RAY_EXPERIMENTAL_NOSET_RBLN_RT_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_FURIOSA_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_MBLT_RT_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_TENSTORRENT_VISIBLE_DEVICES",
    ),
    lambda name, _: _devices.flag(
        name, "Do not change the variable of these devices in workers.", default=False
    ),
)
HIDE_UNASKED_DEVICES = _devices.flag(
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
    "A task that asks for no devices of a kind sees none of them, instead of all.",
    default=False,
)

_environments = Section(
    "Runtime environments",
    "Those of packing and of `init` are read by the program, those of caches and downloads by node agents. See "
    "[runtime environments](runtime-env.md).",
)
RUNTIME_ENV_HOOK = _environments.text(
    "RAY_RUNTIME_ENV_HOOK",
    "Function that takes the `runtime_env` of `init` and returns the one to use.",
    kind="module.function",
    shown_default="none",
)
JOB_CONFIG = _environments.json_object(
    "CLUSTERCTL_JOB_CONFIG",
    "Runtime environment of the submitted job that this program drives. Set by the head.",
    aliases=("RAY_JOB_CONFIG_JSON_ENV_VAR",),
)
OVERRIDE_JOB_RUNTIME_ENV = _environments.flag(
    "RAY_OVERRIDE_JOB_RUNTIME_ENV",
    "Fields that both `init` and the submitted job set: use those of `init` instead of raising ValueError.",
    default=False,
)
UV_RUN = _environments.flag(
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV",
    "Start the workers of a program under `uv run` with `uv run`, too.",
    default=True,
)
IGNORE_GITIGNORE = _environments.flag(
    "RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "Pack files that `.gitignore` files exclude.", default=False
)
DEFAULT_EXCLUDES = _environments.optional_text(
    "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES",
    "Patterns of files not to pack, instead of the default ones.",
    kind="patterns, separated by commas",
    shown_default="version control, virtual environments and caches",
)
BEARER_TOKEN = _environments.text(
    "RAY_RUNTIME_ENV_BEARER_TOKEN",
    "Sent with https:// downloads (http:// only to this machine) to the server in the URI, not to where it redirects.",
    shown_default="none",
)
CACHE_SIZE_GB = _environments.family(
    "RAY_RUNTIME_ENV_{}_CACHE_SIZE_GB",
    ("WORKING_DIR", "PY_MODULES", "PIP", "CONDA", "IMAGE"),
    lambda name, part: _environments.number(
        name, 10.0, f"GiB up to which a node keeps `{part.lower()}` files that no worker uses."
    ),
)
PLUGIN_CACHE_SIZE_GB = _environments.number(
    "RAY_RUNTIME_ENV_<NAME>_CACHE_SIZE_GB",
    10.0,
    "The same for files of the plugin NAME, in capitals.",
)
PLUGINS = _environments.text(
    "RAY_RUNTIME_ENV_PLUGINS",
    "Classes that give further fields of `runtime_env` a meaning.",
    kind="a JSON list",
    shown_default="none",
)
CONDA_HOME = _environments.text(
    "RAY_CONDA_HOME",
    "Conda's installation on the node, for `conda` environments.",
    kind="path",
    shown_default="CONDA_EXE, MAMBA_EXE, or what the PATH has",
)
UPLOAD_KEPT_S = _environments.number(
    "RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S",
    600.0,
    "Seconds after which the head removes an uploaded package that no job has named.",
)

_nodes = Section(
    "Nodes",
    "Read by node agents when they start. A name with small letters is also a key of `init(_system_config={...})`: "
    "RAY_memory_usage_threshold is `memory_usage_threshold`.",
)
OVERRIDE_RESOURCES = _nodes.json_object(
    "RAY_OVERRIDE_RESOURCES", "Resources of the node, instead of those it was given or has found."
)
OVERRIDE_LABELS = _nodes.json_object(
    "RAY_OVERRIDE_LABELS", "Labels of the node, instead of those it was given."
)
NODE_TYPE = _nodes.text("RAY_NODE_TYPE_NAME", "The node's label `ray.io/node-group`.", shown_default="none")
TPU_ACCELERATOR_TYPE = _nodes.text(
    "TPU_ACCELERATOR_TYPE",
    "Type of the TPU slice, such as v5litepod-16. On a node with TPUs it becomes the labels `ray.io/tpu-pod-type` "
    "and `ray.io/accelerator-type`. Google's Kubernetes sets it, and the next three.",
    shown_default="none",
)
TPU_NAME = _nodes.text("TPU_NAME", "Label `ray.io/tpu-slice-name` of a node with TPUs.", shown_default="none")
TPU_WORKER_ID = _nodes.text(
    "TPU_WORKER_ID", "Label `ray.io/tpu-worker-id` of a node with TPUs.", shown_default="none"
)
TPU_TOPOLOGY = _nodes.text(
    "TPU_TOPOLOGY", "Label `ray.io/tpu-topology` of a node with TPUs.", shown_default="none"
)
NODE_MARKET = _nodes.text(
    "RAY_NODE_MARKET_TYPE", "The node's label `ray.io/market-type`.", shown_default="none"
)
NODE_REGION = _nodes.text(
    "RAY_NODE_REGION", "The node's label `ray.io/availability-region`.", shown_default="none"
)
NODE_ZONE = _nodes.text("RAY_NODE_ZONE", "The node's label `ray.io/availability-zone`.", shown_default="none")
MEMORY_THRESHOLD = _nodes.number(
    "RAY_memory_usage_threshold",
    0.95,
    "Share of the machine's memory above which the agent ends the worker that started last.",
    maximum=1.0,
)
MEMORY_REFRESH_MS = _nodes.whole(
    "RAY_memory_monitor_refresh_ms", 250, "Milliseconds between two looks at the memory; 0: never look."
)
SPILLING = _nodes.flag(
    "RAY_automatic_object_spilling_enabled",
    "Write objects to disk when the object store runs short. Objects that find no memory go there in any case.",
    default=True,
)
SPILLING_THRESHOLD = _nodes.number(
    "RAY_object_spilling_threshold",
    0.8,
    "Share of the object store from which on objects that nobody reads are written to disk.",
    maximum=1.0,
)
SPILLING_DIRECTORY = _nodes.text(
    "RAY_object_spilling_directory",
    "Folder for spilled objects.",
    kind="path",
    shown_default="the session's folder",
)
SPILLING_CONFIG = _nodes.json_object(
    "RAY_object_spilling_config",
    "Ray's older form: of `params`, `directory_path` is used when no directory is set.",
)
VERBOSE_SPILLING = _nodes.whole(
    "RAY_verbose_spill_logs",
    2 << 30,
    "Bytes that a node must have spilled until drivers print a line about it, and another one whenever it is twice as "
    "much; 0: never.",
    shown_default="2 GiB",
)
DISK_FULL_FROM = _nodes.number(
    "RAY_local_fs_capacity_threshold",
    0.95,
    "Share of the file system above which no object is written to it.",
    maximum=1.0,
)
WORKER_NICENESS = _nodes.whole(
    "RAY_worker_niceness",
    15,
    "How much lower the scheduling priority of workers is than their agent's, as of nice(1).",
)
MAX_PRELOADING_ZYGOTES = _nodes.whole(
    "RUNTIME_MAX_PRELOADING_ZYGOTES",
    4,
    "Processes with preloaded modules (`runtime_env={'preload': ...}`) that a node has at most. Beyond that, and "
    "with 0, workers import the modules themselves.",
)
EXIT_GRACE_MS = _nodes.whole(
    "RAY_actor_graceful_shutdown_timeout_ms",
    30_000,
    "Milliseconds that an exiting worker may take to run its last handlers before it is killed.",
)
ROTATION_BYTES = _nodes.whole(
    "RAY_ROTATION_MAX_BYTES",
    512 << 20,
    "Size from which on an output file of a worker is rotated; 0: no rotation.",
    shown_default="512 MiB",
)
ROTATION_BACKUPS = _nodes.whole(
    "RAY_ROTATION_BACKUP_COUNT", 5, "Rotated output files to keep per file; 0: no rotation."
)

_files = Section("Processes of the engine", "Read by programs, commands and all daemons.")
TEMPORARY_ROOT = _files.text(
    "CLUSTERCTL_TMPDIR",
    "Folder below which `clusterctl-<uid>` holds sessions: sockets, logs and records. Unix sockets need a short path.",
    kind="path",
    shown_default="TMPDIR, else /tmp",
)
TMPDIR = _files.text(
    "TMPDIR",
    "The system's folder for temporary files; used where it can be written.",
    kind="path",
    shown_default="/tmp",
)
PLAIN_INTERPRETER = _files.flag(
    "RUNTIME_PLAIN_INTERPRETER",
    "For debugging: leave garbage collection and switch interval of Python as they are. Read when a process starts.",
    default=False,
)
LOG_LEVEL = _files.log_level("CLUSTERCTL_LOG_LEVEL", "Log level of control store, node agent and head.")

_graphs = Section(
    "Compiled graphs",
    "Initial values of `dag.DAGContext`. Those without effect are accepted so that programs for Ray run.",
)
GRAPH_GET_TIMEOUT_S = _graphs.number(
    "RAY_CGRAPH_get_timeout",
    10.0,
    "Seconds that `get` waits for a result of a compiled graph; -1: no limit.",
    minimum=-1.0,
)
GRAPH_MAX_INFLIGHT = _graphs.whole(
    "RAY_CGRAPH_max_inflight_executions",
    10,
    "Executions of a compiled graph that are on their way at once; more wait in the process that executes.",
)
GRAPH_SUBMIT_TIMEOUT_S = _graphs.number("RAY_CGRAPH_submit_timeout", 10.0, "Without effect.", minimum=-1.0)
GRAPH_TEARDOWN_TIMEOUT_S = _graphs.number(
    "RAY_CGRAPH_teardown_timeout",
    30.0,
    "Seconds that the teardown of a compiled graph waits for calls that have begun; -1: no limit.",
    minimum=-1.0,
)
GRAPH_READ_TIMEOUT_S = _graphs.number("RAY_CGRAPH_read_iteration_timeout_s", 0.1, "Without effect.")
GRAPH_BUFFER_BYTES = _graphs.whole(
    "RAY_CGRAPH_buffer_size_bytes",
    1_000_000,
    "A hint: values up to this size, 64 KiB at most, are copied by their readers.",
)
GRAPH_MAX_BUFFERED = _graphs.whole(
    "RAY_CGRAPH_max_buffered_results",
    1000,
    "Results that are kept because an earlier one was not fetched yet.",
)

_training = Section("Training", "Read by the process that calls `fit`, unless it says otherwise.")
TRAIN_REPORT_TIMEOUT_S = _training.number(
    "RAY_TRAIN_COLLECTIVE_TIMEOUT_S",
    1800.0,
    "Seconds that a rank waits for the others in a report with a checkpoint, or a function of `train.collective`, "
    "until the run ends with an error that shows where each rank is; -1: no limit.",
    minimum=-1.0,
)
TRAIN_STORAGE_TIMEOUT_S = _training.number(
    "RAY_TRAIN_STORAGE_TIMEOUT_S",
    300.0,
    "Seconds without progress after which reading or writing the storage of a run or a checkpoint is an error. Read by "
    "workers and by the run's controller, too.",
    minimum=0.0,
)
TRAIN_COPY_BYTES = _training.whole(
    "CLUSTERCTL_TRAIN_COPY_BYTES",
    256 << 20,
    "Of a checkpoint in a remote storage, a rank's files up to this size together are also kept in the object stores "
    "of two nodes, as long as it is the latest; 0: none are.",
)

_tuning = Section("Tuning", "Read by the process that calls `fit`.")
TUNE_CHANGES_FOLDER = _tuning.flag(
    "RAY_CHDIR_TO_TRIAL_DIR", "The current folder of a trial is its own.", default=True
)

_serving = Section(
    "Serving", "Read by the ingress of a node or by replicas, whose `runtime_env` may set them."
)
SERVE_INGRESS_PROCESSES = _serving.whole(
    "CLUSTERCTL_SERVE_INGRESS_PROCESSES",
    1,
    "Processes that share the ports of an ingress. More than one pays where a node has cores to spare and one process "
    "is busy.",
    minimum=1,
)
SERVE_LOG_TO_STDERR = _serving.flag(
    "RAY_SERVE_LOG_TO_STDERR", "Replicas log to standard error as well as to their files.", default=True
)
SERVE_LOG_ENCODING = _serving.text(
    "RAY_SERVE_LOG_ENCODING",
    "Encoding of the logs of replicas without a logging_config.",
    kind="TEXT or JSON",
    default="TEXT",
)
SERVE_SYNC_IN_THREADS = _serving.flag(
    "RAY_SERVE_RUN_SYNC_IN_THREADPOOL",
    "Sync methods of a replica run at the same time, on up to max_ongoing_requests threads; with 0 in turn.",
    default=True,
)
SERVE_LLM_TIMEOUT_S = _serving.number(
    "RAY_SERVE_LLM_ROUTER_HTTP_TIMEOUT",
    600.0,
    "Seconds that a request for a language model waits for its response, or for the first part of a stream.",
    minimum=0.0,
)

OF_PROGRAMS: tuple[Section, ...] = (_finding, _program, _workers, _environments, _files)
OF_NODES: tuple[Section, ...] = (_workers, _devices, _environments, _nodes, _files)
SECTIONS: tuple[Section, ...] = (
    *OF_PROGRAMS[:3],
    _devices,
    _environments,
    _nodes,
    _files,
    _graphs,
    _training,
    _tuning,
    _serving,
)


def cache_size_gb(kind: str) -> Setting[float]:
    """The setting for the files of a built-in field, such as PIP, or of a plugin."""
    known = CACHE_SIZE_GB.members.get(kind)
    return PLUGIN_CACHE_SIZE_GB.named(kind) if known is None else known


def system_config() -> dict[str, str]:
    """The variables of this process that are keys of `_system_config`, under these keys, unknown ones included. An
    agent hands them on to the processes of its node."""
    prefix = "RAY_"
    return {
        name.removeprefix(prefix): value
        for name, value in os.environ.items()
        if name.startswith(prefix) and name[len(prefix) :][:1].islower()
    }
