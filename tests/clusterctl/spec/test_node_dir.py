"""Where a node's state lies on its machine."""

from __future__ import annotations

import pytest

from clusterctl.errors import CliError
from clusterctl.launcher.node_types import head_change, worker_hash
from clusterctl.launcher.plan import Change
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import load_text
from clusterctl.spec.node_dir import session_dir, sockets_dir

SPEC = """\
cluster_name: c
provider: {{type: {provider}, head: a, workers: [b]}}
head_node_type: head
available_node_types:
  head: {{}}
  big: {{max_workers: 1{big}}}
{rest}
"""


def spec(rest: str = "", big: str = "", provider: str = "ssh") -> ClusterSpec:
    text = SPEC.format(provider=provider, rest=rest, big=big)
    return load_text(text.replace(", head: a, workers: [b]", "") if provider == "local" else text)


def test_state_lies_in_the_home_directory_unless_the_spec_names_another_place() -> None:
    assert session_dir(spec(), "head", "/home/u", "1a2b") == "/home/u/.clusterctl-node/1a2b"
    named = spec("node_dir: /scratch/nodes/", ", node_dir: ~/fast")
    assert session_dir(named, "head", "/home/u", "1a2b") == "/scratch/nodes/1a2b"
    assert session_dir(named, "big", "/home/u", "1a2b") == "/home/u/fast/1a2b"


def test_rays_sockets_need_a_short_path() -> None:
    assert session_dir(spec("runtime: {kind: ray}"), "head", "/home/u", "1a2b") == "/tmp/clusterctl-1a2b"
    assert session_dir(spec("runtime: {kind: ray}\nnode_dir: /r"), "head", "/home/u", "1a2b") == "/r/1a2b"


def test_sockets_stay_in_tmp() -> None:
    assert sockets_dir("/home/u/.clusterctl-node/1a2b") == "/tmp/clusterctl-1a2b"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (spec_args, says)
        for spec_args, says in (
            ({"rest": "node_dir: nodes"}, "node_dir: 'nodes' must be an absolute path, or begin with ~/"),
            ({"big": ", node_dir: nodes"}, "available_node_types.big.node_dir: 'nodes' must be"),
            ({"rest": "node_dir: /n", "provider": "local"}, "set provider.root"),
        )
    ],
)
def test_a_place_that_cannot_be_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(CliError, match=says.replace("(", r"\(")):
        spec(**given)


def test_another_place_means_other_nodes() -> None:
    before, after = spec(), spec("node_dir: /scratch")
    assert head_change(before, after) is Change.MACHINE
    assert worker_hash(before, "big") != worker_hash(after, "big")
    assert head_change(spec(), spec("", ", node_dir: /scratch")) is Change.NOTHING
