"""Every example runs to its end as a reader would run it, and so does the README's program."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
ARGUMENTS = {"index_stdlib.py": ["--limit", "60"]}
NEEDED = {"grpo.py": "torch"}  # packages that are not always installed
EXPECTED = {
    "hello.py": "squares: [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]",
    "actors.py": "pi is about 3.1",
    "placement.py": "bundle 1 is on node",
    "grpo.py": "reward rose",
    "index_stdlib.py": "the results are equal",
}


def run(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_the_example_runs(path: pathlib.Path) -> None:
    if path.name in NEEDED:
        pytest.importorskip(NEEDED[path.name])
    out = run([str(path), *ARGUMENTS.get(path.name, [])])
    assert EXPECTED[path.name] in out


def test_the_program_of_the_readme_runs(tmp_path: pathlib.Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) == 1
    program = tmp_path / "readme.py"
    program.write_text(blocks[0])
    assert str([x * x for x in range(10)]) in run([str(program)])


def test_the_files_that_the_readme_points_to_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", ["quickstart", "test", "check", "environment"])
def test_the_scripts_are_valid_bash(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / "scripts" / name)], check=True, timeout=60)
