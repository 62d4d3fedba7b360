"""The generated JSON Schema."""

from __future__ import annotations

import json

import msgspec

from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.schema import json_schema


def test_it_has_every_key_and_allows_no_other() -> None:
    schema = json.loads(json.dumps(json_schema()))
    spec = schema["$defs"]["ClusterSpec"]
    assert set(spec["properties"]) == {field.encode_name for field in msgspec.structs.fields(ClusterSpec)}
    assert spec["additionalProperties"] is False
    assert set(spec["required"]) == {"cluster_name", "provider"}
    assert set(spec["then"]["required"]) == {"available_node_types", "head_node_type"}


def test_references_lead_somewhere() -> None:
    schema = json_schema()

    def visit(value: object) -> None:
        if isinstance(value, dict):
            target = value.get("$ref")
            assert target is None or str(target).rsplit("/", 1)[1] in schema["$defs"]
            for inner in value.values():
                visit(inner)
        elif isinstance(value, list):
            for inner in value:
                visit(inner)

    visit(schema)
