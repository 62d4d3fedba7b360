"""The JSON Schema of the spec, for editors, generated from `definition`."""

from __future__ import annotations

from typing import Any

import msgspec

from .definition import ClusterSpec, LocalNodeConfig


def json_schema() -> dict[str, Any]:
    """A draft 2020-12 schema of a cluster YAML."""
    (root,), definitions = msgspec.json.schema_components([ClusterSpec], ref_template="#/$defs/{name}")
    (config,), more = msgspec.json.schema_components([LocalNodeConfig], ref_template="#/$defs/{name}")
    definitions = {**definitions, **more}
    definitions["NodeType"]["properties"]["node_config"] = config
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "clusterctl cluster",
        **root,
        "$defs": definitions,
    }
