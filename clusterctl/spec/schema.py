"""The JSON Schema of the spec, for editors, generated from `definition`."""

from __future__ import annotations

from typing import Any

import msgspec

from .definition import ClusterSpec
from .provider_type import everyone

_IMPLIED = ("available_node_types", "head_node_type")
"""What some types of providers imply."""


def json_schema() -> dict[str, Any]:
    """A draft 2020-12 schema of a cluster YAML."""
    (root,), definitions = msgspec.json.schema_components([ClusterSpec], ref_template="#/$defs/{name}")
    node_configs = [kind.node_config for kind in everyone().values() if kind.node_config]
    configs, more = msgspec.json.schema_components(node_configs, ref_template="#/$defs/{name}")
    definitions = {**definitions, **more}
    definitions["NodeType"]["properties"]["node_config"] = {"anyOf": list(configs)}
    spec = definitions["ClusterSpec"]
    spec["required"] = [key for key in spec["required"] if key not in _IMPLIED]
    implying = [name for name, kind in everyone().items() if kind.implies_node_types]
    spec["if"] = {"properties": {"provider": {"properties": {"type": {"not": {"enum": implying}}}}}}
    spec["then"] = {"required": list(_IMPLIED)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "clusterctl cluster",
        **root,
        "$defs": definitions,
    }
