"""The JSON Schema of the spec, for editors, generated from `definition`."""

from __future__ import annotations

from typing import Any

import msgspec

from .definition import ClusterSpec
from .load import NODE_CONFIGS

_IMPLIED = ("available_node_types", "head_node_type")
"""What one's own machines imply: see `on_premise`."""


def json_schema() -> dict[str, Any]:
    """A draft 2020-12 schema of a cluster YAML."""
    (root,), definitions = msgspec.json.schema_components([ClusterSpec], ref_template="#/$defs/{name}")
    configs, more = msgspec.json.schema_components(NODE_CONFIGS.values(), ref_template="#/$defs/{name}")
    definitions = {**definitions, **more}
    definitions["NodeType"]["properties"]["node_config"] = {"anyOf": list(configs)}
    spec = definitions["ClusterSpec"]
    spec["required"] = [key for key in spec["required"] if key not in _IMPLIED]
    spec["if"] = {"properties": {"provider": {"properties": {"type": {"not": {"const": "ssh"}}}}}}
    spec["then"] = {"required": list(_IMPLIED)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "clusterctl cluster",
        **root,
        "$defs": definitions,
    }
