"""The driver's connection: `init`, `shutdown` and `is_initialized`."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import sysconfig
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from runtime._api import init_arguments, job_environment
from runtime._api.ray_context import RayContext, address_info
from runtime._core import head_api
from runtime._node.registry import records
from runtime._process import core_worker
from runtime._process.core_worker import Core, current
from runtime._process.driver import Driver
from runtime._process.driver_logs import LogPrinter
from runtime._process.logging_config import TEXT_FORMAT, LoggingConfig
from runtime._process.printing import Printing, Room
from runtime._session import (
    Daemon,
    new_session_dir,
    settings_environment,
    start_local,
)
from runtime._system import settings, stacks, variables
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.control import KvGet, KvValue
from runtime._wire.messages.node import PrestartWorkers, Register
from runtime.job_config import JobConfig

log = logging.getLogger("runtime")
_daemon: Daemon | None = None
_printing: Printing | None = None
_lock = threading.RLock()
_OPEN_FILES = 65536


def init(
    address: str | None = None,
    *,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    include_dashboard: bool | None = None,
    dashboard_host: str = "127.0.0.1",
    dashboard_port: int | None = None,
    job_config: JobConfig | None = None,
    configure_logging: bool = True,
    logging_level: int | str = logging.INFO,
    logging_format: str | None = None,
    logging_config: LoggingConfig | None = None,
    log_to_driver: bool | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    enable_resource_isolation: bool = False,
    cgroup_path: str | None = None,
    system_reserved_cpu: float | None = None,
    system_reserved_memory: int | None = None,
    proxy_server_url: str | None = None,
    **kwargs: Any,
) -> RayContext:
    """Connects this program to a cluster: the one at `address`, or a new one on this machine.

    Args:
        address: the cluster: "host:port" of its control store (`localhost` means 127.0.0.1), which must have a node on
            this machine; "ray://host:port" of its head's server for remote drivers, from any machine (default port
            10001; needs the extra `client`);
            "local" for a new one; "auto" for the one in CLUSTERCTL_ADDRESS or RAY_ADDRESS, else the one that has a node
            on this machine, even another program's local one. None: as "auto", but local clusters of other programs do
            not count, and a new one is started if none is found.
        num_cpus: CPUs of a new cluster; default: those of the machine. Likewise num_gpus, resources, labels and
            object_store_memory (bytes). With any of them, None as address never joins a cluster.
        ignore_reinit_error: a further call does nothing instead of raising.
        include_dashboard: start a head with a job API (at `dashboard_url`) for a new cluster, which takes longer.
            Default: no head. There are no web pages.
        dashboard_port: port of the job API; default: 8265, or another if that is in use. It listens on the loopback
            interface: dashboard_host and proxy_server_url have no effect.
        job_config: `job_config.JobConfig`; the arguments runtime_env and namespace take precedence.
        log_to_driver: print the output of workers; default True.
        logging_config: logging of the driver and the workers; replaces logging_level and logging_format.
        namespace: namespace of named actors; default: a new one for this program.
        runtime_env: environment of the job's workers, a dict or a `RuntimeEnv`.
        enable_resource_isolation: put the daemons and the workers of a new local cluster into control groups (version
            2) below cgroup_path (default: /sys/fs/cgroup), so that workers leave system_reserved_cpu CPUs (default: 5 %
            of them, 1 to 3) and system_reserved_memory bytes (default: 10 %, 500 MiB to 10 GiB) to the daemons.
        kwargs: Ray's hidden arguments, see `_api/init_arguments.py`.

    Raises:
        RuntimeError: the program is already connected, an argument does not exist, or the cluster's Python has another
            minor version.
        ConnectionError: no cluster is found at `address`.
        TypeError, ValueError: an argument is wrong, or one of a new cluster's when joining one; an environment
            variable has a wrong value.
    """
    init_arguments.check_names(kwargs, address, local_mode)
    isolation = init_arguments.isolation_of(
        enable_resource_isolation,
        cgroup_path,
        system_reserved_cpu,
        system_reserved_memory,
        object_store_memory,
        bool(include_dashboard),
    )
    with _lock:
        if core_worker.current_or_none() is not None:
            if ignore_reinit_error:
                log.info("Calling init() again after it has already been called: nothing to do.")
                return context_of_session()
            raise RuntimeError(
                "Maybe you called ray.init twice by accident? This program is connected already: call shutdown() "
                "before init(), or pass 'ignore_reinit_error=True' to keep the connection it has."
            )
        variables.check(settings.OF_PROGRAMS)
        job = job_config or JobConfig()
        namespace = init_arguments.namespace_of(namespace, job)
        own = init_arguments.own_cluster(
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            resources=resources,
            labels=labels,
            object_store_memory=object_store_memory,
        )
        if isolation is not None:
            own["enable_resource_isolation"] = isolation
        if logging_config is None and (encoding := settings.LOGGING_ENCODING.get()):
            logging_config = LoggingConfig(encoding=encoding)
        if logging_config is not None:
            logging_config._apply()
        elif configure_logging:
            _configure_logging(logging_level, logging_format)
        _raise_open_files_limit()
        environment = job_environment.of_init(
            runtime_env, job_config, skip_hook=bool(kwargs.get("_skip_env_hook"))
        )
        remote = init_arguments.remote_address(address, own, kwargs)
        if remote:
            _connect_remote(remote, namespace, job, environment, log_to_driver, logging_config)
            return context_of_session()
        agent_path = init_arguments.agent_of(address, own, kwargs)
        # Jobs know that they have a cluster; those that were written for Ray may be read for these lines.
        is_quiet = settings.SUBMISSION_ID.get() and sys.modules.get("ray") is not sys.modules["runtime"]
        level = logging.DEBUG if is_quiet else logging.INFO
        done = "Connected to Ray cluster."
        if agent_path:
            log.log(level, "Connecting to existing Ray cluster at address: %s...", address or agent_path)
        else:
            agent_path = _start_local(own, kwargs, bool(include_dashboard), dashboard_port)
            done = "Started a local Ray instance."
        try:
            _connect(agent_path, namespace, job, environment, log_to_driver, logging_config)
        except BaseException:
            _stop_daemon()
            raise
        session = context_of_session()
        url = session.dashboard_url
        log.log(level, "%s%s", done, f" The job API is at http://{url}" if url else "")
        return session


def _configure_logging(level: int | str, format: str | None) -> None:
    logger = logging.getLogger("runtime")
    logger.setLevel(level if isinstance(level, int) else level.upper())
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(format or TEXT_FORMAT))
        logger.addHandler(handler)


def _raise_open_files_limit() -> None:
    """Each connection to a worker is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _start_local(own: dict[str, Any], hidden: dict[str, Any], with_api: bool, api_port: int | None) -> str:
    global _daemon
    isolation = own.pop("enable_resource_isolation", None)
    env_vars = settings_environment(hidden.get("_system_config"), hidden.get("object_spilling_directory"))
    root = hidden.get("_temp_dir")
    try:
        session = new_session_dir(root) if root else None
        start: Callable[..., Daemon] = start_local
        if isolation is not None:
            start = partial(start_local, isolation=isolation)
        if with_api:
            from runtime._session import start_local_head  # few programs ask for it

            start = partial(start_local_head, api_port=api_port)
        _daemon = start(
            memory=hidden.get("_memory"),
            host=hidden.get("_node_ip_address") or "127.0.0.1",
            node_name=hidden.get("_node_name") or "",
            session_dir=session,
            env_vars=env_vars,
            **own,
        )
    except OSError as error:
        raise RuntimeError(f"The local cluster did not start: {error}") from error
    return str(_daemon.ready["unix_path"])


def _connect(
    agent_path: str,
    namespace: str,
    job: JobConfig,
    environment: job_environment.JobEnvironment,
    log_to_driver: bool | None,
    logging_config: LoggingConfig | None,
) -> None:
    config = _job_config(job, environment, log_to_driver, logging_config)
    register = Register(
        True,
        WorkerAddress(b"", b"", ""),
        os.getpid(),
        namespace=namespace or str(uuid.uuid4()),
        entrypoint=_entrypoint(),
        job_config=json.dumps(config),
        submission_id=settings.SUBMISSION_ID.get(),
    )
    core = Driver(agent_path, register)
    try:
        init_arguments.check_python(core.session.python_version)
    except RuntimeError:
        core.close()
        raise
    prints = config["log_to_driver"]
    core_worker.set_current(core)
    core.serve(_log_printing(core, logging_config).put if prints else None)
    _begin_job(core, environment)
    _take_signals()
    _guard_interrupts(core)


def _connect_remote(
    address: str,
    namespace: str,
    job: JobConfig,
    environment: job_environment.JobEnvironment,
    log_to_driver: bool | None,
    logging_config: LoggingConfig | None,
) -> None:
    """Makes this program a remote driver: `_connect` through the server at `address`."""
    try:
        from runtime._remote_driver.core import RemoteCore  # only these programs need gRPC
        from runtime._remote_driver.requests import as_core
        from runtime._remote_driver.token import secret_for
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise ImportError(
            f"ray:// needs gRPC, which is not installed here ({error}): pip install 'clusterctl[client]'"
        ) from error
    config = _job_config(job, environment, log_to_driver, logging_config)
    # Folders of this machine mean nothing there: `working_dir` and `py_modules` bring modules along.
    config.update(sys_path=job.code_search_path, cwd="")
    secret = secret_for(address)
    remote = RemoteCore(address, secret, namespace or str(uuid.uuid4()), _entrypoint(), json.dumps(config))
    core = as_core(remote)
    if config["log_to_driver"]:
        remote.on_driver_logs = _log_printing(core, logging_config).put
    core_worker.set_current(core)
    _begin_job(core, environment)
    _take_signals()
    _guard_interrupts(core)


def _entrypoint() -> str:
    return " ".join(sys.argv) or "python"


def _job_config(
    job: JobConfig,
    environment: job_environment.JobEnvironment,
    log_to_driver: bool | None,
    logging_config: LoggingConfig | None,
) -> dict[str, Any]:
    prints = log_to_driver if log_to_driver is not None else settings.LOG_TO_DRIVER.get()
    return {
        "sys_path": [*_import_paths(), *job.code_search_path],
        "cwd": os.getcwd(),
        "runtime_env": environment[0],
        "log_to_driver": prints,
        "logging": logging_config.to_dict() if logging_config is not None else None,
        "ray_alias": sys.modules.get("ray") is sys.modules["runtime"],
        "default_actor_lifetime": job.default_actor_lifetime,
        "metadata": job.metadata,
    }


def _log_printing(core: Core, logging_config: LoggingConfig | None) -> Printing:
    """What prints the output of workers."""
    global _printing
    room = Room()
    _printing = Printing(
        LogPrinter(core.session.node_host, room=room.wait, with_prefix=logging_config is None), room
    )
    return _printing


def _begin_job(core: Core, environment: job_environment.JobEnvironment) -> None:
    """Brings the files of the job's environment to the cluster."""
    runtime_env, packages = environment
    try:
        job_environment.upload(core, packages)
    except BaseException:
        core_worker.set_current(None)
        core.close()
        raise
    if runtime_env and (runtime_env.get("config") or {}).get("eager_install", True):
        core.agent.send(PrestartWorkers())


def _take_signals() -> None:
    """Has stacks shown on request, and SIGTERM end the program in order."""
    stacks.register("driver")
    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(_number: int, _frame: Any) -> NoReturn:
    """Ends the program in order, exit handlers included. A second SIGTERM must not interrupt these: it ends the process
    at once, and its node cleans up without it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(15)


def _guard_interrupts(core: Core) -> None:
    """Ctrl-C raises KeyboardInterrupt as usual, but not while the engine changes its own state."""
    main = threading.main_thread()
    if (
        threading.current_thread() is not main
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        return

    def again() -> None:
        assert main.ident is not None
        signal.pthread_kill(main.ident, signal.SIGINT)

    def interrupted(number: int, frame: Any) -> None:
        if core_worker.current_or_none() is not core or core.pump.interruptible(frame, again):
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupted)


def _import_paths() -> list[str]:
    """Where the driver finds modules, but for what every Python of this kind has: its script's folder, the current one,
    and what PYTHONPATH or the program itself added.
    """
    everywhere = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    own = [os.path.abspath(path) for path in (*sys.path[:1], "", *sys.path[1:])]
    return [path for path in dict.fromkeys(own) if os.path.isdir(path) and not _is_below(path, everywhere)]


def _is_below(path: str, folders: set[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == folder or real.startswith(folder + os.sep) for folder in folders)


def context_of_session() -> RayContext:
    """What `init` returns: facts about the session of this process."""
    session = current().session
    address = session.control_address or current().agent.remote_path
    return RayContext(
        shutdown,
        address_info(
            session.node_id.hex(),
            session.node_host,
            session.store_path,
            current().agent.remote_path,
            session.session_dir,
            address,
            session.metrics_port,
            _api_address(session.control_address),
        ),
    )


def _api_address(control_address: str) -> str:
    """host:port of the job API of a cluster whose head is on this machine, as it listens on loopback; "": none."""
    heads = (record for record in records() if record.is_head and not record.local)
    if not control_address or control_address not in {head.control_address for head in heads}:
        return ""
    reply = current().call_agent(KvGet(head_api.NAMESPACE, head_api.KEY))
    url = reply.value.decode() if isinstance(reply, KvValue) and reply.value is not None else ""
    return url.removeprefix("http://")


def shutdown(*, wait_for_processes: bool = False, _exiting_interpreter: bool = False) -> None:
    """Disconnects from the cluster, and ends it if `init` started it. Idempotent. In tasks and actors, which belong to
    the cluster, it does nothing.
    """
    with _lock:
        core = core_worker.current_or_none()
        if core is not None and not core.is_driver:
            return
        if core is not None:
            global _printing
            printing, _printing = _printing, None
            if printing is not None and not core.forked:
                printing.take_rest(core.call_agent, core.job_id)
                printing.close()  # while there is a connection: the program's own `sys.stdout` may call the API
            if _daemon is None and not core.forked:  # else nobody is there to ask
                core.history.report()  # while this is the current process: errors are rebuilt
            core_worker.set_current(None)
            core.close()
            stacks.unregister()
        _stop_daemon()


def _forget_parent() -> None:
    """Runs in a forked child, which must not end its parent's cluster."""
    global _daemon, _lock
    _daemon = None
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_parent)


def _stop_daemon() -> None:
    global _daemon
    daemon, _daemon = _daemon, None
    if daemon is not None:
        daemon.stop()


def is_initialized() -> bool:
    """Whether this process is connected."""
    return core_worker.current_or_none() is not None


def _auto_init() -> None:
    if settings.AUTO_CONNECT.get():
        with _lock:
            if not is_initialized():  # else another thread was here first
                init()


core_worker.set_auto_init(_auto_init)
