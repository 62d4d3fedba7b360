"""Rows of docs/incumbents.md about accounts of clouds: boto3 as it is, on AWS as `tests.testbed.aws` plays it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli
from tests.testbed.aws import Aws, Fault

SPEC = """\
cluster_name: demo
provider: {{type: aws, region: us-east-1, endpoint_url: "{url}"}}
head_node_type: head
available_node_types:
  head: {{node_config: {{InstanceType: m5.large}}}}
  worker: {{node_config: {{InstanceType: c5.xlarge}}, min_workers: 1, max_workers: 8}}
"""


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with Aws() as aws:
        yield aws


def test_row_06_a_missing_permission_is_named_before_anything_is_made(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an account may not do showed after minutes, with machines and networks half made, in words that did not
    say what to allow."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPERSON")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    aws.world.faults = [
        Fault("ImportKeyPair", "UnauthorizedOperation", "You are not authorized.", 403),
        Fault("RunInstances", "UnauthorizedOperation", "You are not authorized.", 403),
    ]
    spec = tmp_path / "demo.yaml"
    spec.write_text(SPEC.format(url=aws.url))
    cli = Cli(tmp_path)
    for words in (("check", str(spec)), ("up", "-y", str(spec))):
        ran = cli.run(*words)
        assert ran.status == 2, ran.err
        assert "allow ImportKeyPair to whoever asks" in ran.err
        assert "allow RunInstances to whoever asks" in ran.err
        assert aws.leftovers() == []
