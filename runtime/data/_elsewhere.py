"""Readers of Ray that are not here, because their services and libraries could not be tried: what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

INSTEAD = {
    "from_daft": "from_arrow(frame.to_arrow())",
    "from_mars": "from_pandas(frame.to_pandas())",
    "from_modin": "from_pandas(frame.modin.to_pandas())",
    "from_spark": "from_arrow(frame.toArrow()), or write Parquet with Spark and use read_parquet",
    "read_bigquery": "from_arrow(client.query(query).to_arrow()) of google-cloud-bigquery",
    "read_clickhouse": "from_arrow(client.query_arrow(query)) of clickhouse-connect",
    "read_databricks_tables": "read_sql(query, lambda: databricks.sql.connect(...))",
    "read_delta_sharing_tables": "from_pandas(delta_sharing.load_as_pandas(url))",
    "read_hudi": "from_arrow(table.read_snapshot()) of the package hudi",
    "read_kafka": "read_datasource with a Datasource of your own, whose read tasks consume partitions",
    "read_lerobot": "read_parquet for the table and read_binary_files for the videos",
    "read_mcap": "read_binary_files(paths).flat_map(...) with the package mcap",
    "read_mongo": "from_arrow(pymongoarrow.api.find_arrow_all(collection, query))",
    "read_snowflake": "read_sql(query, lambda: snowflake.connector.connect(...))",
    "read_unity_catalog": "read_delta or read_parquet with the table's storage location",
    "read_videos": "read_binary_files(paths).flat_map(...) with a decoder, for example PyAV",
    "read_zarr": "from_numpy, or read_datasource with a Datasource of your own that reads chunks",
}


def absent(name: str) -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError and says what to use instead."""

    def reader(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(f"ray.data.{name} is not here; use {INSTEAD[name]}.")

    reader.__name__ = reader.__qualname__ = name
    reader.__doc__ = f"Not here; use {INSTEAD[name]}."
    return reader
