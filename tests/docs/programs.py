"""Runs the programs of a page of the documentation."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def check_programs(page: str, folder: pathlib.Path) -> None:
    """The programs of a page run one after the other in one process, in `folder`, and print what it says that they
    print, in this order."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)
    text = "\n".join(blocks)
    expected = re.findall(r"# prints: (.*)", text)
    assert len(blocks) >= 9
    assert len(expected) >= 9
    program = folder / "program.py"
    program.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = iter(done.stdout.splitlines())
    assert [line for line in expected if line not in lines] == [], done.stdout
