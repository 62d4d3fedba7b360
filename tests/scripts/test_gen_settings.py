from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gen_settings.py"
PAGE = ROOT / "docs" / "settings.md"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("gen_settings", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date_and_nothing_reads_past_the_tables() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "| `RAY_TASK_MAX_RETRIES` | whole number from -1 | 3 |",
        "`CLUSTERCTL_JOB_CONFIG`, or else `RAY_JOB_CONFIG_JSON_ENV_VAR`",
        "| `RAY_memory_usage_threshold` | number from 0 to 1 | 0.95 |",
        "| `CLUSTERCTL_SESSION_DIR` | path |",
    ],
)
def test_the_page_says_name_type_default_and_aliases(words: str) -> None:
    assert words in PAGE.read_text()


@pytest.mark.parametrize(
    "use",
    [
        "import os\ndef f(): return os.environ.get('X')",
        "import os\ndef f(): return os.getenv('X')",
        "import os\ndef f(): os.environ['X'] = '1'",
        "def f():\n    from os import environ",
        "def f():\n    from os import getenv as g",
        "import os\ndef f(): return os.environb",
    ],
)
def test_every_way_to_read_the_environment_is_found(script: Any, use: str) -> None:
    assert list(script.reads_past_the_tables([("a/b.py", use)])) == ["a/b.py::f"]


def test_uses_are_named_by_class_and_function(script: Any) -> None:
    text = "import os\nX = os.environ\nclass C:\n    def m(self):\n        return os.environ\n"
    assert script.reads_past_the_tables([("a.py", text)]) == {"a.py::": 2, "a.py::C.m": 5}


def test_words_in_strings_and_the_tables_themselves_do_not_count(script: Any) -> None:
    use = "import os\nos.environ"
    assert script.reads_past_the_tables([("a.py", "'os.environ'"), (script.READERS[0], use)]) == {}
