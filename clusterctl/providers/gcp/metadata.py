"""What Google's metadata server tells a machine that is taken back."""

from __future__ import annotations

from clusterctl.startup.notices import Source

NOTICES = Source(
    server="metadata.google.internal",
    path="/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=60&last_etag={version}",
    headers={"Metadata-Flavor": "Google"},
    says="TRUE",
    means="Google takes this spot machine back within 30 seconds",
    leaves_s=30.0,
)
