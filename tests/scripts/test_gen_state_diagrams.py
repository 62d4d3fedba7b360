from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gen_state_diagrams.py"
PAGE = ROOT / "docs" / "state-machines.md"


def test_the_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "[*] --> DEPENDENCIES_UNREADY",
        "CREATED --> RESCHEDULING: a node with bundles died",
        "ALIVE --> DRAINING",
        "RUNNING --> FINISHED",
        "## Instance",
        "REMOVED --> [*]",
    ],
)
def test_the_page_tells_of_every_machine(words: str) -> None:
    assert words in PAGE.read_text()
