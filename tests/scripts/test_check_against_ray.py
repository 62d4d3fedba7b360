"""The script that runs the tests of the table with Ray: what it takes from the table, and how it reads a report."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import pathlib
import sys
import textwrap
from types import ModuleType

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "check_against_ray"


@pytest.fixture
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_against_ray", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_rows_that_differ_are_left_out(
    script: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.md"
    table.write_text(
        "| name | state | how | test |\n|---|---|---|---|\n"
        "| one | works | | `a.py::test_a`, `b.py::T::test_b` |\n"
        "| two | works | a \\| b | `a.py::test_a` |\n"
        "| three | differs | for a reason | `c.py::test_c` |\n"
    )
    monkeypatch.setattr(script, "TABLE", table)
    assert script.rows_by_test() == {"a.py::test_a": ["one", "two"], "b.py::T::test_b": ["one"]}


def test_the_real_table_has_rows_that_can_be_checked(script: ModuleType) -> None:
    files = {test.partition("::")[0] for test in script.rows_by_test()}
    assert "tests/runtime/api/test_tasks.py" in files
    assert script.can_run_with_ray("tests/runtime/api/test_tasks.py")
    assert not script.can_run_with_ray("tests/runtime/_node/test_log_file.py")


def test_results_of_a_run(
    script: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real run of pytest in a project of its own: no engine is needed to read its report."""
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest
            def test_good(): pass
            def test_bad(): assert False
            @pytest.mark.skip(reason="not here")
            def test_left_out(): pass
            @pytest.mark.parametrize("x", [1, 2])
            def test_of_both(x): assert x == 1
            class TestGroup:
                def test_inside(self): pass
            """
        )
    )
    monkeypatch.setattr(script, "ROOT", tmp_path)
    names = ["test_good", "test_bad", "test_left_out", "test_of_both", "TestGroup::test_inside"]
    assert script.run(sys.executable, "test_it.py", names, tmp_path) == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_left_out": "skipped",
        "test_of_both": "failed",
        "TestGroup::test_inside": "passed",
    }


def test_a_python_that_cannot_run_the_tests_fails_them_all(
    script: ModuleType, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "test_it.py").write_text("def test_a(): pass")
    found = script.run("/bin/false", str(tmp_path / "test_it.py"), ["test_a"], tmp_path)
    assert found == {"test_a": "failed"}
