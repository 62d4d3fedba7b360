"""The functions every program uses: init, shutdown, remote, get, put, wait, kill, cancel, and what the cluster has."""

from __future__ import annotations

import atexit
import inspect
import json
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runtime import _job_environment, _stacks, exceptions
from runtime._logging_config import TEXT_FORMAT, LoggingConfig
from runtime._session import Daemon, find_agent, settings_environment, start_local
from runtime._wire.messages.base import ErrorReply, WorkerAddress
from runtime._wire.messages.control import KillActor
from runtime._wire.messages.node import PrestartWorkers, Register
from runtime._worker import context, core_worker
from runtime._worker.core_worker import Core, current
from runtime._worker.driver_logs import LogPrinter
from runtime.actor import ActorClass, ActorHandle
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator
from runtime.remote_function import RemoteFunction

log = logging.getLogger("runtime")
_daemon: Daemon | None = None
_printer: LogPrinter | None = None
_lock = threading.RLock()

_HIDDEN = frozenset(
    "object_spilling_directory _enable_object_reconstruction _plasma_directory _node_ip_address "
    "_driver_object_store_memory _memory _redis_username _redis_password _temp_dir _metrics_export_port "
    "_system_config _tracing_startup_hook _node_name _skip_env_hook".split()
)


class RuntimeContextInfo(Mapping[str, Any]):
    """What `init` returns: facts about the cluster; a context manager that shuts down at its end."""

    def __init__(self, address_info: dict[str, Any]) -> None:
        self.address_info = address_info
        self.dashboard_url: str | None = None
        self.python_version = ".".join(map(str, sys.version_info[:3]))

    @property
    def ray_version(self) -> str:
        """The version of Ray whose API this is."""
        from runtime import __version__

        return __version__

    ray_commit = ""

    def disconnect(self) -> None:
        """Leaves the cluster."""
        shutdown()

    def __enter__(self) -> RuntimeContextInfo:
        return self

    def __exit__(self, *_error: object) -> None:
        self.disconnect()

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __repr__(self) -> str:
        return f"RayContext(address={self.address_info['address']!r}, python_version={self.python_version!r})"


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
    job_config: Any = None,
    configure_logging: bool = True,
    logging_level: int | str = logging.INFO,
    logging_format: str | None = None,
    logging_config: LoggingConfig | None = None,
    log_to_driver: bool | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    **kwargs: Any,
) -> RuntimeContextInfo:
    """Connects this program to a cluster: the one at `address`, or a new one on this machine.

    Args:
        address: None (the environment's CLUSTERCTL_ADDRESS or RAY_ADDRESS, else a new local one), "local" (a new one),
            "auto" (the cluster whose node runs on this machine), or "host:port" of a control store.
        num_cpus: of a new cluster; default: those of the machine. num_gpus, resources, labels and
            object_store_memory (bytes) likewise.
        ignore_reinit_error: a second call warns instead of raising.
        log_to_driver: print what workers print; default true.
        logging_config: how the driver and the workers log; it replaces logging_level and logging_format.
        namespace: for named actors; default: one of this program's own.
        runtime_env: environment of the job's workers, a dict or a `RuntimeEnv`.

    Raises:
        RuntimeError: already connected, or an unknown argument.
        ConnectionError: no cluster at `address`.
        ValueError: resources given when joining an existing cluster.
    """
    unknown = kwargs.keys() - _HIDDEN
    if unknown:
        raise RuntimeError(f"init() has no argument {', '.join(sorted(unknown))}.")
    if local_mode:
        raise RuntimeError(
            "init(local_mode=True) does not exist any more: use num_cpus=1, or call the function itself."
        )
    with _lock:
        if core_worker.current_or_none() is not None:
            if ignore_reinit_error:
                log.info("init() does nothing: this program is connected already.")
                return _context()
            raise RuntimeError(
                "This program is connected already. Call shutdown() before init(), "
                "or pass ignore_reinit_error=True to keep the connection it has."
            )
        if logging_config is None and os.environ.get("RAY_LOGGING_CONFIG_ENCODING"):
            logging_config = LoggingConfig(encoding=os.environ["RAY_LOGGING_CONFIG_ENCODING"])
        if logging_config is not None:
            logging_config._apply()
        elif configure_logging:
            _configure_logging(logging_level, logging_format)
        if address is None:
            address = os.environ.get("CLUSTERCTL_ADDRESS") or os.environ.get("RAY_ADDRESS") or None
        environment = _job_environment.of_init(runtime_env, job_config)
        own = {
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "resources": resources,
            "labels": labels,
            "object_store_memory": object_store_memory,
        }
        if address is None or address == "local":
            settings = settings_environment(
                kwargs.get("_system_config"), kwargs.get("object_spilling_directory")
            )
            agent_path = _start_local(own, kwargs.get("_memory"), settings)
        else:
            agent_path = _find(address, own)
        try:
            _connect(agent_path, namespace, environment, log_to_driver, logging_config)
        except BaseException:
            _stop_daemon()
            raise
        return _context()


def _configure_logging(level: int | str, format: str | None) -> None:
    logger = logging.getLogger("runtime")
    logger.setLevel(level if isinstance(level, int) else level.upper())
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(format or TEXT_FORMAT))
        logger.addHandler(handler)


def _start_local(own: dict[str, Any], memory: float | None, environment: dict[str, str]) -> str:
    global _daemon
    try:
        _daemon = start_local(memory=memory, env_vars=environment, **own)
    except OSError as error:
        raise RuntimeError(f"The local cluster did not start: {error}") from error
    return str(_daemon.ready["unix_path"])


def _find(address: str, own: dict[str, Any]) -> str:
    given = [name for name, value in own.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)} can be chosen for a new cluster only, and {address!r} names one that runs."
        )
    if address.startswith("/"):  # the agent's socket: how other programs of this machine join a local session
        return address
    record = find_agent(address)
    if record is None:
        raise ConnectionError(
            f"No cluster at {address!r} has a node on this machine. "
            "Start one with `clusterctl up`, or leave the address out for a local one."
        )
    return record.unix_path


def _connect(
    agent_path: str,
    namespace: str | None,
    environment: _job_environment.JobEnvironment,
    log_to_driver: bool | None,
    logging_config: LoggingConfig | None,
) -> None:
    prints = log_to_driver if log_to_driver is not None else os.environ.get("RAY_LOG_TO_DRIVER") != "0"
    runtime_env, packages = environment
    config = {
        "sys_path": _import_paths(),
        "cwd": os.getcwd(),
        "runtime_env": runtime_env,
        "log_to_driver": prints,
        "logging": logging_config.to_dict() if logging_config is not None else None,
        "ray_alias": sys.modules.get("ray") is sys.modules["runtime"],
    }
    register = Register(
        True,
        WorkerAddress(b"", b"", ""),
        os.getpid(),
        namespace=namespace or os.environ.get("RAY_NAMESPACE") or str(uuid.uuid4()),
        entrypoint=" ".join(sys.argv) or "python",
        job_config=json.dumps(config),
        submission_id=os.environ.get("CLUSTERCTL_SUBMISSION_ID", ""),
    )
    core = Core(agent_path, register, os.urandom(28))
    if prints:
        global _printer
        _printer = LogPrinter(core.session.node_host)
        core.on_driver_logs = _printer.print
    core_worker.set_current(core)
    core.start()
    try:
        _job_environment.upload(core, packages)
    except BaseException:
        core_worker.set_current(None)
        core.close()
        raise
    if runtime_env and (runtime_env.get("config") or {}).get("eager_install", True):
        core.agent.send(PrestartWorkers())
    _stacks.register("driver")
    atexit.register(shutdown)
    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))  # so that atexit runs
    _guard_interrupts(core)


def _guard_interrupts(core: Core) -> None:
    """Ctrl-C raises KeyboardInterrupt as ever, but not in the middle of a change of the engine's own state."""
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
        if core_worker.current_or_none() is not core or core.pump.interruptible(again):
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupted)


def _import_paths() -> list[str]:
    """Where the driver finds its own modules: its script's folder, or the current one."""
    first = sys.path[0] if sys.path else ""
    return [os.path.abspath(first or os.getcwd())]


def _context() -> RuntimeContextInfo:
    session = current().session
    return RuntimeContextInfo(
        {
            "node_ip_address": session.node_host,
            "redis_address": None,
            "object_store_address": session.store_path,
            "raylet_socket_name": current().agent.remote_path,
            "webui_url": "",
            "session_dir": session.session_dir,
            "metrics_export_port": session.metrics_port,
            "gcs_address": session.control_address,
            "address": session.control_address or current().agent.remote_path,
            "dashboard_agent_listen_port": 0,
            "node_id": session.node_id.hex(),
        }
    )


def shutdown(*, wait_for_processes: bool = False, _exiting_interpreter: bool = False) -> None:
    """Leaves the cluster; ends it if `init` started it. Doing it twice is fine."""
    with _lock:
        core = core_worker.current_or_none()
        if core is not None:
            core_worker.set_current(None)
            global _printer
            printer, _printer = _printer, None
            if printer is not None and not core.forked:
                printer.take_rest(core)
                printer.flush()
            core.close()
            _stacks.unregister()
            atexit.unregister(shutdown)
        _stop_daemon()


def _forget_parent() -> None:
    """In a forked child: the parent's cluster is not ours to end."""
    global _daemon, _lock
    _daemon = None
    _lock = threading.RLock()
    atexit.unregister(shutdown)


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
    if os.environ.get("RAY_ENABLE_AUTO_CONNECT", "1") != "0":
        init()


core_worker.set_auto_init(_auto_init)


def remote(*args: Any, **options: Any) -> Any:
    """Makes a function a task, or a class an actor: `@remote`, `@remote(num_cpus=2)` or `remote(f)`.

    Raises:
        AssertionError: neither one function or class, nor options alone.
        TypeError: neither a function nor a class.
        ValueError, TypeError: an option is wrong, see `_option_rules`.
    """
    if len(args) == 1 and not options and callable(args[0]):
        return _make_remote(args[0], {})
    if args or not options:
        raise AssertionError(
            "The @ray.remote decorator must be applied either with no arguments and no parentheses, for example "
            "'@ray.remote', or with options by keyword, for example '@ray.remote(num_cpus=2, max_retries=0)'."
        )
    return lambda target: _make_remote(target, options)


def _make_remote(target: Any, options: Mapping[str, Any]) -> RemoteFunction | ActorClass:
    if inspect.isclass(target):
        return ActorClass(target, options)
    if inspect.isfunction(target) or type(target).__name__ == "cython_function_or_method":
        return RemoteFunction(target, options)
    raise TypeError(
        f"The @ray.remote decorator must be applied to either a function or a class, not to {target!r}."
    )


def get(refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
    """The value of a reference, or the values of a list of them; waits for them.

    Args:
        refs: an `ObjectRef` or a list of them.
        timeout: seconds; 0 returns only what is there. None, or less than 0, waits for ever.

    Raises:
        GetTimeoutError: not all were there in time.
        RayTaskError: a task raised; also an instance of the class it raised.
        RayError: the value cannot be had; its subclass says why.
    """
    core = current()
    if timeout is not None and timeout < 0:
        timeout = None
    if refs.__class__ is ObjectRef:
        return core.reader.get((refs,), timeout)[0]
    if isinstance(refs, ObjectRefGenerator):
        return refs
    if hasattr(refs, "_compiled_result"):
        return refs._compiled_result(timeout)
    if not isinstance(refs, list):
        raise ValueError(
            f"Invalid type of object refs, {type(refs)}, is given: get() takes an ObjectRef or a list of ObjectRefs."
        )
    for ref in refs:
        if ref.__class__ is not ObjectRef:
            if all(hasattr(one, "_compiled_result") for one in refs):
                return [one._compiled_result(timeout) for one in refs]
            raise TypeError(f"Attempting to call `get` on the value {ref!r}, which is not an ray.ObjectRef.")
    return core.reader.get(refs, timeout)


def put(value: Any, *, _owner: ActorHandle | None = None, _tensor_transport: Any = None) -> ObjectRef:
    """Stores a value in the cluster; large ones in this node's shared memory.

    Args:
        value: anything that can be pickled.
        _owner: an actor whose process will own the value: it outlives this process, and goes with that one.
            (Ray has had this until 2.55.)

    Raises:
        TypeError: the value is a reference already, or cannot be pickled.
        ValueError: `_owner` is no actor's handle, or `_tensor_transport` is given.
        RayActorError: the actor that should own the value is dead.
        ObjectStoreFullError: there is no room.
    """
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ray.ObjectRef is not allowed: what it refers to is stored already. To store the "
            "reference itself, put it in a list."
        )
    if _tensor_transport is not None:
        raise ValueError("put() stores in shared memory: leave `_tensor_transport` out.")
    if _owner is not None:
        if not isinstance(_owner, ActorHandle):
            raise ValueError(f"put(_owner=) takes the handle of an actor, not {_owner!r}.")
        core = current()
        return core.owner_requests.put_for(value, core.actors.address(_owner._actor))
    return current().objects.put(value)


def wait(
    ray_waitables: Sequence[Any],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[Any], list[Any]]:
    """Waits until `num_returns` of the references are ready, or `timeout` seconds.

    A generator is ready when its next reference is there or its task has ended.

    Returns:
        The ready ones (at most `num_returns`) and the others, each in the given order.

    Raises:
        TypeError: not a list of references.
        ValueError: duplicates, or `num_returns` out of range.
    """
    expected = "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator"
    if isinstance(ray_waitables, ObjectRef | ObjectRefGenerator):
        raise TypeError(f"{expected}, got a single one: {ray_waitables!r}.")
    if not isinstance(ray_waitables, list):
        raise TypeError(f"{expected}, got {type(ray_waitables)}.")
    core = current()
    generators = False
    for ref in ray_waitables:
        if ref.__class__ is not ObjectRef:
            if not isinstance(ref, ObjectRefGenerator):
                raise TypeError(f"{expected}, got list containing {type(ref)}: {ref!r}.")
            generators = True
    if timeout is not None and timeout < 0:
        raise ValueError(
            f"The 'timeout' argument must be nonnegative, or None to wait for ever. Received {timeout}"
        )
    if len(set(ray_waitables)) != len(ray_waitables):
        raise ValueError("Wait requires a list of unique ray_waitables: one stands in it twice.")
    if not ray_waitables:
        return [], []
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}: ask for one at least.")
    if num_returns > len(ray_waitables):
        raise ValueError(
            "num_returns cannot be greater than the number of ray_waitables provided to wait: "
            f"{num_returns} of {len(ray_waitables)}."
        )
    if not generators:
        return core.reader.wait(ray_waitables, num_returns, timeout, fetch_local)
    # What a generator gives next stands for it.
    peeked = [ref if ref.__class__ is ObjectRef else ref._peek() for ref in ray_waitables]
    ready, rest = core.reader.wait(peeked, num_returns, timeout, fetch_local)
    of_peeked = {id(peek): ref for peek, ref in zip(peeked, ray_waitables, strict=True)}
    return [of_peeked[id(peek)] for peek in ready], [of_peeked[id(peek)] for peek in rest]


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """Ends an actor at once. With `no_restart=False` its `max_restarts` apply.

    Raises:
        ValueError: `actor` is no handle.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(
            f"ray.kill() only supported for actors. For tasks, try ray.cancel(). Got: {type(actor)}."
        )
    core = current()
    core.actors.check(actor._actor)
    reply = core.call_agent(KillActor(actor._actor.actor_id, no_restart))
    if isinstance(reply, ErrorReply):
        raise exceptions.RaySystemError(f"cannot kill {actor!r}: {reply.message}")
    if no_restart:
        core.actors.killed(actor._actor)


def cancel(ref: Any, *, force: bool = False, recursive: bool = True) -> None:
    """Cancels the task that makes `ref`: it never starts, or is interrupted (`force`: its process is killed).

    Raises:
        TypeError: not a reference of a task.
        ValueError: `force` on an actor's call.
    """
    core = current()
    if isinstance(ref, ObjectRefGenerator):
        ref = ref._generator_ref
    if not isinstance(ref, ObjectRef):
        raise TypeError(
            f"ray.cancel() only supported for object refs. For actors, try ray.kill(). Got: {type(ref)}."
        )
    core.cancellation.cancel(ref._entry, force, recursive)


def get_gpu_ids() -> list[Any]:
    """The ids of the GPUs that the current task or actor may use."""
    executor = current().executor
    running = context.execution.get()
    if executor is None or running is None or running.lease is None:
        return []
    return executor.devices.gpu_ids(running.lease.gpu_ids)
