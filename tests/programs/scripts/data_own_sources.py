"""A data source and a sink of one's own: generated readings are read in parallel and stored in a file per block."""

import json
import pathlib
import tempfile

import pyarrow as pa
import ray
from ray.data import Datasink, Datasource, ReadTask
from ray.data.block import BlockAccessor, BlockMetadata

ray.init(num_cpus=4)


class Readings(Datasource):
    """`sensors` times `hours` rows; a read task reads whole sensors."""

    def __init__(self, sensors, hours):
        super().__init__()
        self.sensors = sensors
        self.hours = hours

    def estimate_inmemory_data_size(self):
        return self.sensors * self.hours * 24

    def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
        tasks = []
        for sensor in range(self.sensors):
            metadata = BlockMetadata(
                num_rows=self.hours, size_bytes=self.hours * 24, input_files=None, exec_stats=None
            )
            tasks.append(ReadTask(lambda sensor=sensor: [self.block(sensor)], metadata))
        return tasks

    def block(self, sensor):
        values = [round(20 + sensor + 0.5 * (hour % 4), 2) for hour in range(self.hours)]
        return pa.table({"sensor": [sensor] * self.hours, "hour": list(range(self.hours)), "value": values})


class JsonFiles(Datasink):
    """Writes each block to a file; the driver writes a list of what was written when all is done."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def on_write_start(self, schema=None, **kwargs):
        self.folder.mkdir()

    def write(self, blocks, ctx):
        rows = 0
        for number, block in enumerate(blocks):
            accessor = BlockAccessor.for_block(block)
            lines = [json.dumps(dict(row)) for row in accessor.iter_rows(public_row_format=True)]
            (self.folder / f"{ctx.task_idx}-{number}.jsonl").write_text("\n".join(lines))
            rows += accessor.num_rows()
        return rows

    def on_write_complete(self, result):
        (self.folder / "done").write_text(f"{sum(result.write_returns)} {result.num_rows}")

    def on_write_failed(self, error):
        (self.folder / "failed").write_text(type(error).__name__)


dataset = ray.data.read_datasource(Readings(sensors=3, hours=8))
print("read:", dataset.count(), sorted(dataset.columns()))
means = dataset.groupby("sensor").mean("value").sort("sensor").take_all()
print(means)
print("hot:", dataset.filter(lambda row: row["value"] > 22.9).count())

target = pathlib.Path(tempfile.mkdtemp()) / "readings"
dataset.map(lambda row: {**row, "fahrenheit": row["value"] * 1.8 + 32}).write_datasink(JsonFiles(target))
print("done:", (target / "done").read_text())
stored = [json.loads(line) for path in target.glob("*.jsonl") for line in path.read_text().splitlines()]
print("stored:", len(stored), sorted(stored[0]), round(sum(row["fahrenheit"] for row in stored), 2))


def fails(row):
    if row["sensor"] == 2:
        raise ValueError("sensor 2 is broken")
    return row


other = pathlib.Path(tempfile.mkdtemp()) / "broken"
try:
    dataset.map(fails).write_datasink(JsonFiles(other))
except Exception as error:
    print(
        "the write fails:", isinstance(error, ray.exceptions.RayTaskError), "sensor 2 is broken" in str(error)
    )
print("it was told:", (other / "failed").exists(), "done:", (other / "done").exists())
