"""One table through CSV, JSON lines and a database, and what each format keeps of it."""

import json
import pathlib
import sqlite3
import tempfile

import pyarrow.csv
import ray

ray.init(num_cpus=4)
folder = pathlib.Path(tempfile.mkdtemp())
ROWS = [
    {"id": i, "name": f"item {i}", "price": round(i * 1.25, 2), "stock": None if i == 2 else i * 3}
    for i in range(6)
]
table = ray.data.from_items(ROWS, override_num_blocks=2)


def ordered(dataset):
    return sorted(dataset.take_all(), key=lambda row: row["id"])


table.write_csv(str(folder / "csv"))
back = ray.data.read_csv(str(folder / "csv"))
print("csv:", back.schema().names, ordered(back)[1:3])
(folder / "semicolons.csv").write_text("id;name;when\n1;x;2024-05-01\n2;y;2024-05-02\n")
dialect = ray.data.read_csv(
    str(folder / "semicolons.csv"), parse_options=pyarrow.csv.ParseOptions(delimiter=";"), include_paths=True
)
print(
    "dialect:",
    [(row["id"], row["name"], str(row["when"]), pathlib.Path(row["path"]).name) for row in ordered(dialect)],
)
typed = ray.data.read_csv(
    str(folder / "csv"),
    convert_options=pyarrow.csv.ConvertOptions(column_types={"id": "string"}, include_columns=["id"]),
)
print("as text:", sorted(row["id"] for row in typed.take_all()))

table.write_json(str(folder / "json"))
lines = [
    json.loads(line) for path in (folder / "json").glob("*.json") for line in path.read_text().splitlines()
]
print("json lines:", sorted(line["id"] for line in lines), sorted(lines[0]))
print("json:", ordered(ray.data.read_json(str(folder / "json")))[2])
(folder / "nested.jsonl").write_text(
    '{"id": 1, "at": {"x": 1, "y": [2, 3]}}\n{"id": 2, "at": {"x": 4, "y": []}}\n'
)
nested = ray.data.read_json(str(folder / "nested.jsonl"), lines=True)
print("nested:", ordered(nested))
(folder / "array.json").write_text(json.dumps([{"id": 1, "ok": True}, {"id": 2, "ok": False}]))
print("array:", ordered(ray.data.read_json(str(folder / "array.json"))))


def connect():
    return sqlite3.connect(folder / "shop.db")


with connect() as connection:
    connection.execute("CREATE TABLE items (id INTEGER, name TEXT, price REAL, stock INTEGER)")
table.write_sql("INSERT INTO items VALUES (?, ?, ?, ?)", connect)
with connect() as connection:
    print(
        "in the database:",
        connection.execute("SELECT count(*), sum(price), sum(stock) FROM items").fetchall(),
    )
cheap = ray.data.read_sql("SELECT id, name FROM items WHERE price < 3 ORDER BY id", connect)
print("sql:", cheap.schema().names, ordered(cheap))
print("aggregated:", ray.data.read_sql("SELECT max(price) AS most FROM items", connect).take_all())

(folder / "bin").mkdir()
for i in range(3):
    (folder / "bin" / f"{i}.dat").write_bytes(bytes(range(i + 1)))
(folder / "bin" / "notes.txt").write_text("no data")
blobs = ray.data.read_binary_files(str(folder / "bin"), include_paths=True, file_extensions=["dat"])
print("binary:", sorted((pathlib.Path(row["path"]).name, row["bytes"]) for row in blobs.take_all()))
try:
    ray.data.read_csv(str(folder / "missing.csv")).take_all()
except FileNotFoundError as error:
    print("missing:", type(error).__name__)
