"""What a runtime environment has done in each worker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from runtime._core import environments
from runtime._executor.set_up import set_up
from runtime._wire.messages.control import KvGet

PACKAGE = environments.package_uri("0" * 64, ".hook")


def failing() -> None:
    raise ValueError("not like this")


class Links:
    """Knows one package."""

    def __init__(self, pickled: bytes | None = None) -> None:
        self._pickled = pickled

    def ask(self, request: Any) -> Any:
        assert isinstance(request, KvGet)
        return SimpleNamespace(value=self._pickled)


def run(name: str, pickled: bytes | None = None, modules: tuple[str, ...] = ()) -> str:
    links: Any = Links(pickled)
    return set_up(links, modules, name)


def test_a_function_is_called_by_its_path() -> None:
    assert run("os.getpid") == ""


def test_a_path_that_leads_nowhere_is_told() -> None:
    assert "is it importable on every node?" in run("no.such.module.function")


@pytest.mark.parametrize(("pickled", "problem"), [(None, "has no package"), (failing, "not like this")])
def test_what_goes_wrong_with_a_pickled_function_is_told(pickled: Any, problem: str) -> None:
    assert problem in run(PACKAGE, None if pickled is None else cloudpickle.dumps(pickled))


def test_a_pickled_function_comes_from_the_control_store() -> None:
    assert run(PACKAGE, cloudpickle.dumps(lambda: None)) == ""


def test_modules_are_imported_before_the_function_is_called() -> None:
    assert run("os.getpid", modules=("json", "os.path")) == ""
    assert "No module named 'no_such'" in run("os.abort", modules=("no_such.module",))


def test_a_module_that_ends_the_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "su_exits.py").write_text("raise SystemExit('not here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "SystemExit: not here" in run("", modules=("su_exits",))
