"""Runs the real command line in processes of its own."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.polling import eventually

LOCAL = """\
cluster_name: {name}
provider: {{type: local}}
max_workers: {most}
idle_timeout_minutes: {idle}
head_node_type: head
available_node_types:
  head:
    resources: {{CPU: 1}}
  worker:
    resources: {{CPU: 1}}
    min_workers: {least}
    max_workers: {most}
"""


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """`clusterctl` with a state folder of its own, in `folder`."""

    folder: pathlib.Path

    def env(self) -> dict[str, str]:
        return {**os.environ, "CLUSTERCTL_HOME": str(self.folder / "home")}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "clusterctl", *arguments],
            env=self.env(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, timeout_s: float = 60.0) -> Ran:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        return Ran(process.returncode, out, err)

    def interrupt(self, process: subprocess.Popen[str], number: int = signal.SIGINT) -> Ran:
        process.send_signal(number)
        out, err = process.communicate(timeout=60.0)
        return Ran(process.returncode, out, err)

    def close_terminal(self, told: str, *arguments: str) -> int:
        """Starts a command on a terminal of its own, which is closed when the command has told so much; the status."""
        ours, its = os.openpty()
        command = [*("setsid", "--ctty", "--wait"), sys.executable, "-m", "clusterctl", *arguments]
        with subprocess.Popen(
            command, stdin=its, stdout=its, stderr=its, cwd=self.folder, env=self.env()
        ) as process:
            os.close(its)
            seen = b""
            try:
                while told.encode() not in seen:
                    seen += os.read(ours, 4096)
            finally:
                os.close(ours)
            return process.wait(60)

    def spec(self, name: str, least: int = 0, most: int = 2, idle: float = 5.0, extra: str = "") -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(LOCAL.format(name=name, least=least, most=most, idle=idle) + extra)
        return str(path)

    def script(self, text: str, folder: str = "work", name: str = "job.py") -> str:
        path = self.folder / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    def status(self) -> dict[str, Any]:
        ran = self.run("status", "--json")
        return dict(ran.json()) if ran.status == 0 else {"nodes": [], "error": ran.err}

    def wait(self, condition: Callable[[dict[str, Any]], object], timeout_s: float = 60.0) -> bool:
        """Whether the status becomes as wanted."""
        return eventually(lambda: condition(self.status()), timeout_s)


def machines_root() -> pathlib.Path:
    """Where local machines keep their folders in tests."""
    return pathlib.Path(os.environ["CLUSTERCTL_TMPDIR"], f"clusterctl-{os.getuid()}", "m")


def alive(status: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes that count."""
    return [node for node in status["nodes"] if node["state"] == "ALIVE"]
