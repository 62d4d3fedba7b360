"""Which machines `down` ends, and what it says of those that it cannot end."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any, cast

import pytest

from autoscaler.provider import Capabilities, Machine, MachineState, MachineTags, Transient
from clusterctl.errors import TimedOut, Unreachable
from clusterctl.home import STOPPED, Home, new_record
from clusterctl.launcher import machines
from clusterctl.launcher.down import Ended, down, to_end, without_minimum, workers_of, workers_to_end
from clusterctl.providers.ssh.config import SshProvider
from clusterctl.spec.load import load_text

SPEC = load_text(
    "cluster_name: c\nprovider: {type: local}\nhead_node_type: head\n"
    "available_node_types: {head: {}, a: {min_workers: 2, max_workers: 3}}\n"
)


def machine(name: str, kind: str, launched_s: float, role: str = MachineTags.WORKER) -> Machine:
    tags = {MachineTags.ROLE: role}
    return Machine(name, MachineState.RUNNING, kind, tags, launched_s=launched_s)


LISTED = [
    machine("h", "head", 0.0, MachineTags.HEAD),
    machine("a3", "a", 3.0),
    machine("a1", "a", 1.0),
    machine("a2", "a", 2.0),
    machine("b1", "b", 1.0),
]


def test_the_head_is_no_worker() -> None:
    assert workers_to_end(LISTED, {}) == ["a1", "b1", "a2", "a3"]


def test_of_each_type_the_longest_lived_are_kept() -> None:
    assert workers_to_end(LISTED, {"a": 2}) == ["b1", "a3"]
    assert workers_to_end(LISTED, {"a": 9, "b": 1}) == []


def test_a_spec_without_minimum_keeps_all_limits() -> None:
    less = without_minimum(SPEC)
    assert [kind.min_workers for kind in less.available_node_types.values()] == [0, 0]
    assert less.available_node_types["a"].max_workers == 3


class Silent:
    """A platform of which one machine of the cluster does not answer, and another was let in."""

    capabilities = Capabilities()

    def list(self) -> list[Machine]:
        tags = {MachineTags.ROLE: MachineTags.HEAD}
        return [Machine("h", MachineState.RUNNING, "head", tags, unreachable="10.0.0.1 does not answer")]

    def terminate(self, ids: Sequence[str]) -> dict[str, Transient]:
        return {id: Transient("no answer") for id in ids}

    def cleanup(self) -> None:
        raise Transient("10.0.0.2 may have the cluster's key")


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(machines, "_SILENCE_S", 0.0)
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})
    home.write(new_record(home, SPEC, "c.yaml"))
    return home


def test_all_that_may_be_left_is_named_and_the_cluster_is_remembered(home: Home) -> None:
    with pytest.raises(TimedOut) as raised:
        down(home, "c", [cast(Any, Silent())], lambda text: None)
    assert "h: 10.0.0.1 does not answer" in raised.value.message
    assert "10.0.0.2 may have the cluster's key" in raised.value.message
    assert "What runs there goes on" in raised.value.hint, "the head is among them"
    assert home.names() == ["c"]


def test_what_is_abandoned_is_named(home: Home) -> None:
    ended = down(home, "c", [cast(Any, Silent())], lambda text: None, abandon=True)
    assert isinstance(ended, Ended)
    assert [text.partition("10.0.0.")[2][0] for text in ended.abandoned] == ["1", "2"]
    assert home.names() == []


def test_machines_are_entered_as_the_file_says_today() -> None:
    text = "cluster_name: c\nprovider: {type: ssh, head: %s}\nauth: {ssh_private_key: %s}\n"
    ends = to_end(load_text(text % ("10.0.0.1", "/old")), load_text(text % ("10.0.0.9", "/moved")))
    assert isinstance(ends.provider, SshProvider)
    assert (ends.provider.head, ends.auth.ssh_private_key) == ("10.0.0.1", "/moved")


def test_a_stopped_cluster_has_no_workers_to_end(home: Home) -> None:
    record = new_record(home, SPEC, "c.yaml")
    record.state = STOPPED
    with pytest.raises(Unreachable, match="is stopped, and has no workers"):
        workers_of(record, keeps_minimum=False)
