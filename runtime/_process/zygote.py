"""The process that forks workers: one clean, single-threaded Python that has imported what workers need.

`python -m runtime._process.zygote --fd N --parent P` serves its node agent over the open socket `N` with lines of JSON.
`P` is the process id of the agent, whose child this is; 0 when it is not.

    agent -> zygote   {"op": "fork", "token": int, "start": {...}, "env": {...}, "cwd": str, "path": [str],
                       "out": path, "err": path}       the log paths may hold "{pid}"
                      {"op": "kill", "pid": int}
                      {"op": "preload", "modules": [str], "env": {...}, "cwd": str, "path": [str], "ray_alias": bool}
                                                       once, before the first fork; see `preloading`
    zygote -> agent   {"ready": pid}    {"forked": token, "pid": pid, "out": path, "err": path}
                      {"preloaded": {"refusal": str, "missing": {module: str}}}
                      {"exited": pid, "status": int}   as of `os.waitstatus_to_exitcode`: negative is a signal
                      {"failed": token, "error": str}

It has no threads and no event loop, so that a fork copies nothing that cannot be copied. Its
children die with it, and it dies with its agent. What a worker started dies with the worker, unless it left the
worker's process group, and at the latest with the zygote, unless it made a session of its own: the zygote leads a
session, and kills what is left in it. If the zygote is killed, its agent does that.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import io
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from runtime._executor import thread_limit
from runtime._executor.process_end import exit_status, flush_output
from runtime._system import interpreter, settings, stacks
from runtime._system.sessions import kill_session

from . import preloading

Start = dict[str, Any]
_PR_SET_PDEATHSIG = 1
_IDLE_BEFORE_PREIMPORT_S = 0.3
_PREIMPORT = ("numpy", "runtime.api", "runtime.actor", "runtime.runtime_context", "runtime.dag")
"""Modules that many programs use in workers. The workers share their pages."""
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int, number: int = signal.SIGKILL) -> None:
    """Asks the kernel for a signal when this process's parent ends; exits at once when it has ended already."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


class Zygote:
    """Serves one agent until its socket closes.

    Args:
        connection: the socket to the agent.
        entry: what a forked worker runs with the request's `start`; the process ends when it returns.
        parent: process id of the agent, whose child this is; 0 when it is not.
    """

    def __init__(self, connection: socket.socket, entry: Callable[[Start], None], parent: int = 0) -> None:
        self._connection = connection
        self._entry = entry
        self._parent = parent
        self._children: set[int] = set()
        self._received = b""
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_write.setblocking(False)
        self._wake_read.setblocking(False)
        self._ended = False
        self._preloaded_path: list[str] = []

    def serve(self) -> None:
        """Forks, kills and reaps until the agent is gone or SIGTERM comes. Whatever ends it, it kills what is left."""
        try:
            self._serve()
        finally:
            self._kill_left()

    def _serve(self) -> None:
        self._take_signals()
        self._look_for_parent()
        interpreter.freeze()
        self._tell({"ready": os.getpid()})
        idle_s: float | None = _IDLE_BEFORE_PREIMPORT_S
        while not self._ended:
            readable, _, _ = select.select([self._connection, self._wake_read], [], [], idle_s)
            if not readable:
                idle_s = None
                _preimport()
                continue
            if self._wake_read in readable:
                self._drain_wakeups()
                self._reap()
            if self._connection in readable and not self._read():
                break

    def _take_signals(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGCONT, self._look_for_parent)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)

    def _kill_left(self) -> None:
        for pid in self._children:
            _kill_group(pid)
        if os.getsid(0) == os.getpid():  # else the program that started this Python leads the session
            kill_session(os.getpid(), spared=os.getpid())

    def _end(self, number: int, frame: object) -> None:
        self._ended = True

    def _look_for_parent(self, number: int = 0, frame: object = None) -> None:
        if self._parent and os.getppid() != self._parent:
            self._ended = True

    def _read(self) -> bool:
        try:
            data = self._connection.recv(1 << 16)
        except ConnectionError:  # the agent was killed before it had read all that we told it
            return False
        if not data:
            return False
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["op"] == "fork":
                self._fork(request)
            elif request["op"] == "preload":
                self._preload(request)
            elif request["pid"] in self._children:
                os.kill(request["pid"], signal.SIGKILL)
        return True

    def _preload(self, request: dict[str, Any]) -> None:
        """Imports modules for the workers to come. If the agent ends meanwhile, so does this process."""
        if "control_group" in request:
            _join_group(request["control_group"])  # what is imported is the workers' memory
        with preloading.ended_by(self._connection):
            self._preloaded_path = _apply_environment(request)
            found = preloading.preload(request["modules"], request["ray_alias"])
            _preimport()
            refusal = found.refusal or preloading.unfit()
        self._take_signals()  # as the modules may have taken them
        self._tell({"preloaded": {"refusal": refusal, "missing": found.missing}})

    def _fork(self, request: dict[str, Any]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._tell({"failed": request["token"], "error": f"cannot fork a worker: {error}"})
            return
        if pid == 0:
            self._become_worker(request, parent)
        _lead_group(pid)
        self._children.add(pid)
        out, err = _log_path(request, "out", pid), _log_path(request, "err", pid)
        self._tell({"forked": request["token"], "pid": pid, "out": out, "err": err})

    def _become_worker(self, request: dict[str, Any], parent_pid: int) -> NoReturn:
        status = 1
        try:
            die_with_parent(parent_pid)
            _lead_group(0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGCONT):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for held in (self._connection, self._wake_read, self._wake_write):
                held.close()
            _redirect(request)
            if "control_group" in request["start"]:
                _join_group(request["start"]["control_group"])
            os.nice(settings.WORKER_NICENESS.get_or_default())
            if self._preloaded_path:  # the worker's own begins with it
                sys.path[:] = [entry for entry in sys.path if entry not in self._preloaded_path]
            _apply_environment(request)
            _seed()
            self._entry(request["start"])
            status = 0
        except SystemExit as error:
            status = exit_status(error)
        except BaseException:
            traceback.print_exc()
        finally:
            flush_output()
            os._exit(status)

    def _reap(self) -> None:
        while self._children:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            _kill_group(pid)  # before its number is free again
            _, status = os.waitpid(pid, 0)
            self._children.discard(pid)
            self._tell({"exited": pid, "status": os.waitstatus_to_exitcode(status)})

    def _drain_wakeups(self) -> None:
        try:
            while self._wake_read.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _tell(self, fact: dict[str, Any]) -> None:
        try:
            self._connection.sendall(json.dumps(fact).encode() + b"\n")
        except OSError:
            self._ended = True  # the agent is gone


def _join_group(folder: str) -> None:
    """Enters a control group, unless it is not visible here, as in a container."""
    if os.path.isdir(folder):
        with open(os.path.join(folder, "cgroup.procs"), "w") as group:
            group.write("0")


def _lead_group(pid: int) -> None:
    """Makes a worker the leader of a process group. Worker and zygote both do, so that neither can be too late."""
    try:
        os.setpgid(pid, pid)
    except (PermissionError, ProcessLookupError):
        return  # the other was first, or the worker has ended


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (PermissionError, ProcessLookupError):
        return  # nobody is left, or only what changed its user


def _log_path(request: dict[str, Any], name: str, pid: int) -> str:
    path: str = request[name]
    return path.replace("{pid}", str(pid))


def _redirect(request: dict[str, Any]) -> None:
    """Points the standard streams to /dev/null and the worker's two log files, line by line."""
    pid = os.getpid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number, name in ((1, "out"), (2, "err")):
        path = _log_path(request, name, pid)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, number)
        os.close(log)
    sys.stdout = _line_buffered(1)
    sys.stderr = _line_buffered(2)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]


def _line_buffered(descriptor: int) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _apply_environment(request: dict[str, Any]) -> list[str]:
    """Working directory, import path, environment variables. Returns what was added to the import path."""
    os.environ.update(request["env"])
    if "TZ" in request["env"]:
        time.tzset()
    if request["cwd"]:
        os.chdir(request["cwd"])
    added = [entry for entry in dict.fromkeys(request["path"]) if entry not in sys.path]
    sys.path[:0] = added
    return added


def _seed() -> None:
    """Random numbers of this worker's own. The standard library sees to its own at a fork."""
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    if numpy_random is not None:
        numpy_random.seed()
    if torch is not None:
        torch.default_generator.seed()  # not `torch.seed`, which sees to devices as well


def _preimport() -> None:
    for name in _PREIMPORT:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    gc.collect()
    interpreter.freeze()


def main() -> None:
    """Entry point of the zygote process."""
    # Without `argparse`, which takes half a megabyte: only node agents write these arguments.
    _, descriptor, _, parent = sys.argv[1:]
    serve(int(descriptor), int(parent))


def serve(descriptor: int, parent: int) -> NoReturn:
    """Makes this process the zygote of the agent at the other end of a socket.

    Args:
        parent: process id of the agent, whose child this is; 0 when it is not.
    """
    if parent:
        die_with_parent(parent, signal.SIGCONT)  # even a stopped process takes this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stacks.register("zygote")
    thread_limit.begin()
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    from runtime._process.main import prepare

    Zygote(connection, prepare(), parent).serve()
    os._exit(0)  # nothing is left to be finished


if __name__ == "__main__":
    main()
