"""In a process of their own: the title is that of the whole process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from pathlib import Path
from runtime._system.process_title import ProcessTitle

def shown():
    return Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0").decode(), Path("/proc/self/comm").read_text().strip()

before = Path("/proc/self/environ").read_bytes(), len(Path("/proc/self/cmdline").read_bytes())
title = ProcessTitle()
for text in ("a long title of a task", "short"):
    title.show(text)
    title.name(text)
    print(*shown(), sep="|")
title.show("x" * 100_000)
print(set(shown()[0]))
for number in range(1000):
    title.show(f"task {number}")
print(shown()[0])
after = Path("/proc/self/environ").read_bytes(), len(Path("/proc/self/cmdline").read_bytes())
print(before == after)
"""


def test_titles() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.splitlines() == [
        "a long title of a task|a long title of",
        "short|short",
        "{'x'}",
        "task 999",
        "True",
    ]
