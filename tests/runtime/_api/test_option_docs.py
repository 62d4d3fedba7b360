"""The docstrings of `remote`, `.options()` and `method` describe every option that exists, with type and default."""

from __future__ import annotations

import inspect
import re

import pytest

from runtime import api
from runtime._api import actor_methods
from runtime._api.actor_handle import ActorMethod, _BoundMethod
from runtime._api.option_rules import _FIXED, _RULES, ACTOR, TASK
from runtime.actor import ActorClass
from runtime.remote_function import RemoteFunction

ENTRY = re.compile(
    r"^\s+(\w+) \((?P<types>[^,()]+)(?:, default:? (?P<default>[^()]+))?\): (?P<text>\S.*)$", re.M
)
WORDS = {
    (float, int): "float",
    (int,): "int",
    (int, str): "int or str",
    (bool,): "bool",
    (bool, list, tuple): "bool or list",
    (dict,): "dict",
    (list, dict): "dict or list",
    (str,): "str",
}


def described(what: object) -> dict[str, re.Match[str]]:
    found = list(ENTRY.finditer((inspect.getdoc(what) and "\n" + str(what.__doc__)) or ""))
    names = [entry[1] for entry in found]
    assert sorted(names) == sorted(set(names)), "an option is described twice"
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize(
    ("what", "options"),
    [
        (api.remote, TASK | ACTOR),
        (RemoteFunction.options, TASK - _FIXED - {"object_store_memory"}),
        (ActorClass.options, ACTOR - _FIXED),
        (ActorMethod.options, _BoundMethod._VALID),
        (actor_methods.method, frozenset(actor_methods._VALID)),
    ],
)
def test_every_option_is_described_and_no_other(what: object, options: frozenset[str]) -> None:
    assert described(what).keys() == options


@pytest.mark.parametrize("what", [api.remote, RemoteFunction.options, ActorClass.options])
def test_types_are_those_that_are_checked(what: object) -> None:
    for name, entry in described(what).items():
        types = _RULES[name].types
        if types != (object,):
            assert entry["types"] == WORDS[types], name


@pytest.mark.parametrize(
    "what",
    [api.remote, RemoteFunction.options, ActorClass.options, ActorMethod.options, actor_methods.method],
)
def test_every_option_has_a_default(what: object) -> None:
    without = {name for name, entry in described(what).items() if entry["default"] is None}
    assert without <= {"num_cpus"}  # `remote` says it in words: tasks and actors differ


@pytest.mark.parametrize(
    "what", [api.remote, RemoteFunction.options, ActorClass.options, ActorMethod.options]
)
def test_errors_are_named(what: object) -> None:
    text = str(what.__doc__).partition("Raises:")[2]
    assert "TypeError" in text
    assert "ValueError" in text
