"""Events in a partitioned folder of Parquet files: writing, appending, selected columns, filters, compaction."""

import pathlib
import tempfile

import pyarrow.parquet as pq
import ray
from ray.data.expressions import col

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data
lake = pathlib.Path(tempfile.mkdtemp())


def event(i):
    return {
        "id": i,
        "country": ["dk", "fi", "no"][i % 3],
        "day": 1 + i % 2,
        "size": i * 1.5,
        "tags": [f"t{i % 4}", "all"],
    }


events = ray.data.from_items([event(i) for i in range(60)], override_num_blocks=4)
events.write_parquet(str(lake / "events"), partition_cols=["country", "day"])
print(
    "folders:",
    sorted(str(p.relative_to(lake / "events")) for p in (lake / "events").glob("*/*") if p.is_dir()),
)

back = ray.data.read_parquet(str(lake / "events"))
print("columns:", sorted(back.columns()), "rows:", back.count())
print("types:", {name: str(kind) for name, kind in sorted(zip(back.schema().names, back.schema().types))})
print(
    "by country:",
    sorted((r["country"], r["sum(size)"]) for r in back.groupby("country").sum("size").take_all()),
)

norway = ray.data.read_parquet(str(lake / "events"), columns=["id", "country"]).filter(
    expr=col("country") == "no"
)
print("norway:", norway.count(), sorted(row["id"] for row in norway.take_all())[:5])
large = back.filter(expr=(col("size") >= 75) & (col("country") != "dk")).select_columns(["id", "size"])
print("large:", sorted((row["id"], row["size"]) for row in large.take_all()))
print("one partition:", ray.data.read_parquet(str(lake / "events" / "country=fi" / "day=2")).count())

events.limit(10).write_parquet(str(lake / "small"), mode="overwrite")
events.limit(5).write_parquet(str(lake / "small"), mode="append")
print("appended:", ray.data.read_parquet(str(lake / "small")).count())
events.limit(7).write_parquet(str(lake / "small"), mode="overwrite")
print("overwritten:", ray.data.read_parquet(str(lake / "small")).count())
events.limit(3).write_parquet(str(lake / "small"), mode="ignore")
print("ignored:", ray.data.read_parquet(str(lake / "small")).count())
try:
    events.limit(3).write_parquet(str(lake / "small"), mode="error")
except ValueError as error:
    print("refused:", type(error).__name__)

ray.data.read_parquet(str(lake / "events")).repartition(1).write_parquet(
    str(lake / "compact"), compression="gzip"
)
files = sorted((lake / "compact").glob("*.parquet"))
metadata = pq.read_metadata(files[0])
print("files:", len(files), "rows:", metadata.num_rows, metadata.row_group(0).column(0).compression)
again = ray.data.read_parquet([str(path) for path in files])
print("lists survive:", again.sort("id").take(2)[1]["tags"])
with_paths = ray.data.read_parquet(str(lake / "compact"), include_paths=True)
print("path column:", {pathlib.Path(row["path"]).suffix for row in with_paths.take_all()})
