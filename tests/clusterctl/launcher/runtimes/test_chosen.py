"""Which runtime a spec gets, and what each does differently."""

from __future__ import annotations

import pathlib
import typing

import pytest

from clusterctl.home import Home, new_record
from clusterctl.launcher.runtimes.chosen import runtime_of
from clusterctl.launcher.runtimes.engine import Engine
from clusterctl.launcher.runtimes.ray import Ray
from clusterctl.spec import definition
from clusterctl.spec.load import load_text

SPEC = """\
cluster_name: c
provider: {{type: ssh, head: 10.0.0.1}}
runtime: {{kind: {kind}}}
head_node_type: head
available_node_types: {{head: {{}}}}
"""


def test_the_spec_chooses() -> None:
    assert isinstance(runtime_of(load_text(SPEC.format(kind="engine"), environ={})), Engine)
    assert isinstance(runtime_of(load_text(SPEC.format(kind="ray"), environ={})), Ray)


def test_every_runtime_that_a_spec_can_name_states_the_same_facts() -> None:
    (of_engine, of_ray) = typing.get_args(definition.EngineRuntime | definition.RayRuntime)
    facts = [
        {name for name in vars(kind) if isinstance(vars(kind)[name], bool) and not name.startswith("_")}
        for kind in (of_engine, of_ray)
    ]
    assert facts[0] == facts[1]


@pytest.mark.parametrize(
    ("kind", "variables"),
    [
        ("engine", {"CLUSTERCTL_ADDRESS", "CLUSTERCTL_LOGIN"}),
        ("ray", {"RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}),
    ],
)
def test_what_programs_on_a_node_need(tmp_path: pathlib.Path, kind: str, variables: set[str]) -> None:
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path)})
    spec = load_text(SPEC.format(kind=kind), environ={})
    record = new_record(home, spec, "c.yaml")
    home.write(record)
    home.new_secret("c")
    record.control_address = "h:1"
    assert set(runtime_of(spec).environment(home, record)) == variables


def test_only_our_engine_starts_at_boot() -> None:
    assert "boot_entry.py c-1" in Engine().removal_of_boot_entry("c-1")
    assert Ray().removal_of_boot_entry("c-1") == ""
