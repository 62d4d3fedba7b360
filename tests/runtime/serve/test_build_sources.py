"""Which files belong to the code of a deployment."""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Iterator

import pytest

from runtime.serve._build_sources import sources

FILES = {
    "built_main.py": "import json\nimport built_part\nfrom built_package.inner import function\n",
    "built_part.py": "from built_deep import value\n",
    "built_deep.py": "import built_main\nvalue = 1\ndef f(): ...\nfrom built_package import inner\n",
    "built_other.py": "",
    "built_package/__init__.py": "",
    "built_package/inner.py": "def function(): ...\n",
}


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("built_")]:
        del sys.modules[name]


def test_modules_beside_it_that_it_uses_count(folder: pathlib.Path) -> None:
    importlib.import_module("built_other")
    found = sources(importlib.import_module("built_main"))
    assert set(found) == {"built_main", "built_part", "built_package.inner"}
    assert found["built_part"] == FILES["built_part.py"].encode()


def test_of_a_module_in_a_package(folder: pathlib.Path) -> None:
    assert set(sources(importlib.import_module("built_package.inner"))) == {"built_package.inner"}


def test_installed_packages_and_those_of_the_engine_do_not_count() -> None:
    assert sources(importlib.import_module("runtime.serve.config")) == {}
    assert set(sources(importlib.import_module("msgspec"))) == {"msgspec"}
