"""Programs written for Ray run unchanged, and print what they print there.

`scripts/*.py` say `import ray`; `scripts/*.out` is what each printed with Ray (scripts/compare_with_ray --write).
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = pathlib.Path(__file__).parent / "scripts"
OPTIONAL = (
    "PIL",
    "fastapi",
    "gymnasium",
    "httpx",
    "optuna",
    "pandas",
    "pyarrow",
    "sklearn",
    "starlette",
    "torch",
    "websockets",
    "xgboost",
)


def needs(program: pathlib.Path) -> list[str]:
    """The packages that it imports and that are not here."""
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", program.read_text(), re.MULTILINE))
    return [name for name in OPTIONAL if name in imported and importlib.util.find_spec(name) is None]


@pytest.mark.parametrize("program", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_it_prints_what_it_prints_with_ray(program: pathlib.Path) -> None:
    missing = needs(program)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    command = [sys.executable, "-m", "runtime.compat.ray", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == program.with_suffix(".out").read_text()


def test_every_program_has_its_output() -> None:
    programs = {path.stem for path in SCRIPTS.glob("*.py")}
    assert {path.stem for path in SCRIPTS.glob("*.out")} == programs
    assert len(programs) >= 90
    assert sum(name.startswith("data_") for name in programs) >= 20
    assert sum(name.startswith("rllib_") for name in programs) >= 12
    assert sum(name.startswith("serve_") for name in programs) >= 12
