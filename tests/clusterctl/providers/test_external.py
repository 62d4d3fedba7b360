"""The door to providers that are not part of this package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clusterctl.errors import SpecError, UsageProblem
from clusterctl.providers import registry
from clusterctl.providers.external import loading
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import load_text


def spec(path: str, more: str = "") -> ClusterSpec:
    provider = f"{{type: external, class: '{path}'{more}}}"
    return load_text(
        f"cluster_name: name\nprovider: {provider}\nhead_node_type: small\navailable_node_types: {{small: {{}}}}\n"
    )


def make(path: str) -> OperatorProvider:
    return registry.make(spec(path), "one", {"owner": "o"})


def test_a_class_is_named_as_package_module_class() -> None:
    with pytest.raises(
        SpecError, match=r"provider\.class: 'module\.Class' does not name a class; write package\.module"
    ):
        spec("module.Class")


def test_its_settings_are_its_own() -> None:
    found = spec("m:C", more=", config: {region: somewhere, sizes: [1, 2]}").provider
    assert found.config == {"region": "somewhere", "sizes": [1, 2]}  # type: ignore[union-attr]


def test_what_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_provider.py").write_text("raise ValueError('on purpose')\n")
    with pytest.raises(
        UsageProblem, match=r"module 'no_such_provider' cannot be imported: ModuleNotFoundError"
    ):
        make("no_such_provider:Machines")
    with pytest.raises(UsageProblem, match="'broken_provider' cannot be imported: ValueError: on purpose"):
        make("broken_provider:Machines")
    with pytest.raises(UsageProblem, match="the module 'json' has no class 'Machines'"):
        make("json:Machines")


def test_a_class_that_lacks_something_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(
        UsageProblem, match=r"json:JSONDecoder is not a provider: it has no capabilities, check, "
    ):
        make("json:JSONDecoder")


def test_rays_node_providers_are_refused_with_advice() -> None:
    text = "cluster_name: name\nprovider: {type: external, module: mine.Provider}\n"
    with pytest.raises(SpecError, match="Ray's node providers have another protocol"):
        load_text(text + "head_node_type: small\navailable_node_types: {small: {}}\n")


def test_the_head_gets_the_module_and_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = spec("examples.providers.directories:Directories")
    for_head = registry.for_head(ours, registry.make(ours, "one", {"owner": "o", "root": str(tmp_path)}))
    ((name, file),) = for_head.files  # `examples` is a namespace, of which only this is needed
    assert name == "provider/examples/providers/directories.py"
    assert Path(file).read_text().startswith('"""A provider in one file')
    assert for_head.settings["root"] == str(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".clusterctl-node" / "provider"
    folder.mkdir(parents=True)
    (folder / "only_on_the_head.py").write_text("from examples.providers.directories import Directories\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    again = registry.make(spec("only_on_the_head:Directories"), "one", for_head.settings)
    assert again.settings() == {"root": str(tmp_path), "owner": "o"}
    assert sys.path[-1] == str(folder)


def test_a_package_travels_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "whole_provider" / "inner"
    package.mkdir(parents=True)
    for path in (package.parent / "__init__.py", package / "__init__.py", package.parent / "prices.json"):
        path.write_text("")
    (package / "machines.py").write_text("from examples.providers.directories import Directories\n")
    (package.parent / ".env").write_text("TOKEN=secret")  # hidden files stay here
    (package.parent / ".git").mkdir()
    (package.parent / ".git" / "config").write_text("")
    ours = spec("whole_provider.inner.machines:Directories")
    registry.make(ours, "one", {"owner": "o"})
    names = [name for name, _ in loading.files_for_head(ours.provider)]  # type: ignore[arg-type]
    assert names == [
        "provider/whole_provider/__init__.py",
        "provider/whole_provider/inner/__init__.py",
        "provider/whole_provider/inner/machines.py",
        "provider/whole_provider/prices.json",
    ]
