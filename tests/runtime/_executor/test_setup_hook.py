"""The function that a runtime environment has called in each worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from runtime._core import environments
from runtime._executor.setup_hook import run_setup_hook
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


def run(name: str, pickled: bytes | None = None) -> str:
    links: Any = Links(pickled)
    return run_setup_hook(links, name)


def test_a_function_is_called_by_its_path() -> None:
    assert run("os.getpid") == ""


def test_a_path_that_leads_nowhere_is_told() -> None:
    assert "is it importable on every node?" in run("no.such.module.function")


@pytest.mark.parametrize(("pickled", "problem"), [(None, "has no package"), (failing, "not like this")])
def test_what_goes_wrong_with_a_pickled_function_is_told(pickled: Any, problem: str) -> None:
    assert problem in run(PACKAGE, None if pickled is None else cloudpickle.dumps(pickled))


def test_a_pickled_function_comes_from_the_control_store() -> None:
    assert run(PACKAGE, cloudpickle.dumps(lambda: None)) == ""
