"""What EC2's metadata service tells a machine that is taken back."""

from __future__ import annotations

from clusterctl.startup.notices import Source

_TOKEN = "X-aws-ec2-metadata-token"
NOTICES = Source(
    server="169.254.169.254",
    path="/latest/meta-data/spot/instance-action",
    token=("/latest/api/token", {f"{_TOKEN}-ttl-seconds": "60"}, _TOKEN),
    means="EC2 takes this spot machine back within two minutes",
    leaves_s=120.0,
    time="time",
)
