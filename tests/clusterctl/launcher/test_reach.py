"""The way to a head's API costs no import of a cloud's SDK: what is remembered of the head suffices."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path
from autoscaler.provider import Machine, MachineState, MachineTags
from clusterctl.providers import registry
from clusterctl.home import Home, new_record
from clusterctl.launcher import reach
from clusterctl.spec.load import load_text

home, spec = Home(Path(sys.argv[1])), load_text(sys.argv[2])
record = new_record(home, spec, "c.yaml")
tags = {MachineTags.CLUSTER_ID: record.cluster_id, MachineTags.ROLE: MachineTags.HEAD}
record.head = Machine("i-1", MachineState.RUNNING, "h", tags, "10.0.0.1", "198.51.100.1", zone=sys.argv[3])
record.api_url = "http://127.0.0.1:8265"
home.write(record)
home.new_secret(record.name)
assert home.read(record.name) == record
provider = registry.make(spec, record.cluster_id, record.provider_settings)
client = reach.api(home, record, provider)
assert client._url != record.api_url, "through a port of this machine"
print([name for name in ("boto3", "botocore", "google.cloud.compute_v1") if name in sys.modules])
"""
SPEC = "cluster_name: c\nprovider: {%s}\nhead_node_type: h\navailable_node_types: {h: {%s}}\n"


@pytest.mark.parametrize(
    ("provider", "kind", "zone"),
    [
        ("type: aws, region: us-west-2", "node_config: {InstanceType: m5.large}", "us-west-2a"),
        (
            "type: gcp, project_id: p, region: us-west1, availability_zone: us-west1-a",
            "node_config: {machineType: n2-standard-2}",
            "us-west1-a",
        ),
    ],
)
def test_no_sdk_is_imported_to_ask_a_head_that_is_remembered(
    tmp_path: pathlib.Path, provider: str, kind: str, zone: str
) -> None:
    for folder in ("clusters", "locks"):
        (tmp_path / folder).mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), SPEC % (provider, kind), zone],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == "[]\n", ran.stderr
