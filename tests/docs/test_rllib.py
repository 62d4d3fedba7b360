"""The programs of docs/rllib.md run one after the other, and print what the page says that they print."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rllib.md"


def test_its_programs_print_what_it_says(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    text = "\n".join(blocks)
    expected = re.findall(r"# prints: (.*)", text)
    assert len(blocks) >= 17
    assert len(expected) >= 21
    program = tmp_path / "program.py"
    program.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = iter(done.stdout.splitlines())
    assert [line for line in expected if line not in lines] == [], done.stdout
