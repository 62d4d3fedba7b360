"""The tables of settings name every variable that the sources and the documents speak of."""

from __future__ import annotations

import ast
import pathlib
import re
from collections import Counter
from collections.abc import Iterator

import clusterctl.settings
from runtime._system import settings
from runtime._system.variables import Family, Setting, declared

ROOT = pathlib.Path(__file__).parents[2]
WORD = re.compile(r"(?<![A-Za-z0-9_.])(?:RAY|CLUSTERCTL|RUNTIME)_[A-Za-z0-9_]*[A-Za-z0-9]")
MESSAGES = {
    "CLUSTERCTL_COMMAND": "a command, on its way to a shell",
    "CLUSTERCTL_EXEC": "marks what `exec` started, to end it",
    "CLUSTERCTL_EXEC_IN": "the same in a container",
    "CLUSTERCTL_EXPORTS": "variables, on their way to a shell",
    "CLUSTERCTL_INSIDE": "a command, on its way into a container",
    "CLUSTERCTL_PLACED": "marks what a placed job started, to end it",
    "CLUSTERCTL_PLACED_ENTRYPOINT": "where a job's command runs, on its way to the program that places it",
    "CLUSTERCTL_SYNC": "a program, on its way to a machine",
    "CLUSTERCTL_TEST_RUN": "marks what a test started, to find it",
}
"""Variables by which our processes speak to each other; no user sets them."""
ELSEWHERE = {
    "RAY_AUTH_MODE": "set for nodes that run Ray itself",
    "RAY_HEAD_IP": "set beside CLUSTERCTL_HEAD_IP",
    "RAY_RUNTIME_ENV_CREATE_WORKING_DIR": "set for pip and uv",
}
NOT_VARIABLES = {
    "RAY_ADDRESS_ENVIRONMENT_VARIABLE",
    "RAY_API_SERVER_ADDRESS_ENVIRONMENT_VARIABLE",
    "RAY_DEFAULT_LABEL_KEYS_PREFIX",
    "RAY_NAMESPACE_ENVIRONMENT_VARIABLE",
    "RUNTIME_ENV_SETUP_FAILED",
    "RUNTIME_ENV_SETUP_FAILURE",
}


def names() -> set[str]:
    found = set()
    for setting in declared((*settings.SECTIONS, *clusterctl.settings.SECTIONS)):
        found |= {setting.name, *setting.aliases}
    return found


def sources() -> Iterator[pathlib.Path]:
    for package in ("runtime", "clusterctl", "autoscaler"):
        yield from sorted((ROOT / package).rglob("*.py"))


def strings(path: pathlib.Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_variable_in_the_sources_is_declared() -> None:
    known = names() | MESSAGES.keys() | ELSEWHERE.keys() | NOT_VARIABLES
    unknown = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in sources()
        for text in strings(path)
        for word in WORD.findall(text)
        if word not in known and not any(name.startswith(word) for name in known)
    }
    assert not unknown


def test_every_variable_in_the_documents_is_declared() -> None:
    known = names() | MESSAGES.keys() | ELSEWHERE.keys()
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name != "ray-compatibility.md"]
    unknown = {
        f"{page.name}: {word}"
        for page in (*pages, ROOT / "README.md", ROOT / "ARCHITECTURE.md")
        for word in WORD.findall(page.read_text())
        if word not in known and not any(name.startswith(word) for name in known)
    }
    assert not unknown


def test_no_setting_is_declared_twice() -> None:
    found = [setting.name for setting in declared((*settings.SECTIONS, *clusterctl.settings.SECTIONS))]
    assert sorted(found) == sorted(set(found))


def test_every_setting_is_used() -> None:
    texts = [
        path.read_text() for path in sources() if path.name != "settings.py" or "providers" in path.parts
    ]
    constants = {word for text in texts for word in re.findall(r"\b(?:settings|engine)(?=\.(\w+))", text)}
    variables = {word for text in texts for word in re.findall(r"[\"'${({](\w+)", text)}
    unused = []
    for module in (settings, clusterctl.settings):
        own = Counter(re.findall(r"\w+", pathlib.Path(str(module.__file__)).read_text()))
        for constant, value in vars(module).items():
            if not isinstance(value, Setting | Family):
                continue
            names_of_it = {value.name} if isinstance(value, Setting) else {*value.members}
            if own[constant] == 1 and constant not in constants and not names_of_it & variables:
                unused.append(constant)
    assert not unused
