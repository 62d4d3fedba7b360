"""How schemas and data sets print."""

from __future__ import annotations

import pyarrow as pa

from runtime.data._api.schema import Schema
from runtime.data._plan import nodes
from runtime.data.dataset import Dataset, MaterializedDataset

SCHEMA = pa.schema([("identifier", pa.int64()), ("x", pa.list_(pa.float32()))])


def test_a_schema_prints_as_a_table() -> None:
    kind = str(pa.list_(pa.float32()))
    expected = [
        "Column      Type",
        "------      ----",
        "identifier  int64",
        f"x           {kind}",
    ]
    assert str(Schema(SCHEMA)).splitlines() == expected


def test_a_data_set_prints_its_columns_and_its_plan() -> None:
    given = nodes.Given(
        (nodes.GivenBlock("a", 3, 24), nodes.GivenBlock("b", 4, 32)), pa.schema([("id", pa.int64())])
    )
    kept = MaterializedDataset(given, name="few")
    assert repr(kept) == "MaterializedDataset(name='few', num_blocks=2, num_rows=7, schema={id: int64})"
    assert repr(Dataset(nodes.Limit(given, 3))) == "Dataset(schema={id: int64})\nLimit[3]\n+- Given[2 blocks]"
    assert repr(Dataset(nodes.Sample(given, 0.5))).startswith("Dataset(schema=unknown)\n")
