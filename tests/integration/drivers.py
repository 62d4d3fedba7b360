"""Drivers as processes of their own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap


class Driver:
    """A program in a process of its own that prints lines for the test to read.

    The program must print what the test reads with flush=True.
    """

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def line(self, starts_with: str) -> str:
        """The rest of the next line that starts so (bounded by the test's time limit)."""
        for line in self.output:
            if line.startswith(starts_with):
                return line[len(starts_with) :].strip()
        raise AssertionError(f"the driver ended with {self.process.wait(60)} before it said {starts_with!r}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self.output.close()


def session_files() -> list[str]:
    """What all sessions of this run have on disk now."""
    return [str(path) for path in pathlib.Path(os.environ["CLUSTERCTL_TMPDIR"]).glob("*/*")]
