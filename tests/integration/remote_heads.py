"""A head with a server for remote drivers, programs that drive it from outside, and a network path that can be cut."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

from runtime._session import Daemon, new_session_dir, start_control, start_node, write_secret
from runtime._session.daemons import start_remote_drivers
from runtime._system import files


class RemoteHead:
    """The processes of a head with two CPUs.

    Attributes:
        address: host:port of the server for remote drivers.
        secret_file: the cluster's secret.
    """

    def __init__(self) -> None:
        self._session = new_session_dir()
        self.secret_file = write_secret(self._session)
        self.daemons: list[Daemon] = []
        try:
            self.control = start_control(self._session, self.secret_file)
            self.daemons.append(self.control)
            self.agent = start_node(
                str(self.control.ready["address"]), self._session, self.secret_file, num_cpus=2, head=True
            )
            self.daemons.append(self.agent)
            self.server = start_remote_drivers(
                str(self.control.ready["address"]), self._session, self.secret_file
            )
            self.daemons.append(self.server)
        except BaseException:
            self.close()
            raise
        self.address = str(self.server.ready["address"])

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.stop()
        files.remove_tree(self._session)

    def drivers(self) -> list[int]:
        """The pids of the driver processes."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, parent = path.read_text().rpartition(")")[2].split()[:2]
                if int(parent) == self.server.pid and state != "Z":
                    found.append(int(path.parent.name))
        return found

    def environment(self, address: str | None = None, **more: str) -> dict[str, str]:
        """What a program's environment is: outside of the cluster, with RAY_ADDRESS and the secret."""
        own = {name: value for name, value in os.environ.items() if name != "CLUSTERCTL_ADDRESS"}
        given = {"RAY_ADDRESS": f"ray://{address or self.address}", "RAY_AUTH_TOKEN_PATH": self.secret_file}
        return {**own, **given, **more}

    def start(self, program: str, address: str | None = None, **more: str) -> subprocess.Popen[str]:
        """Starts a program outside of the cluster. It reads and writes pipes."""
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=self.environment(address, **more),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, address: str | None = None, **more: str) -> str:
        """What a program prints; fails when the program does."""
        process = self.start(program, address, **more)
        try:
            out, err = process.communicate(timeout=170)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, out + err
        return out


@contextlib.contextmanager
def remote_head() -> Iterator[RemoteHead]:
    head = RemoteHead()
    try:
        yield head
    finally:
        head.close()


class Path:
    """A TCP proxy in front of an address: a network path that can be cut and mended."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._is_cut = False
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._spawn(self._accept)

    def _spawn(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._sockets |= {near, far}
            self._spawn(self._copy, near, far)
            self._spawn(self._copy, far, near)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Ends all connections and refuses new ones. What is on its way is lost."""
        with self._lock:
            self._is_cut = True
            self._end_all()

    def mend(self) -> None:
        """Lets connections through again."""
        with self._lock:
            self._is_cut = False

    def _end_all(self) -> None:
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._end_all()
        for thread in self._threads:
            thread.join(60)
        for end in self._sockets:
            end.close()
