"""Training samples in files of their own kind: arrays, WebDataset shards, file names that say what is inside."""

import io
import pathlib
import tarfile
import tempfile

import numpy as np
import ray
from ray.data.datasource import FilenameProvider

ray.init(num_cpus=4)
folder = pathlib.Path(tempfile.mkdtemp())
arrays = ray.data.range_tensor(24, shape=(2, 3), override_num_blocks=3)
arrays.write_numpy(str(folder / "npy"), column="data")
files = list((folder / "npy").glob("*.npy"))
print("arrays:", len(files) >= 1, sum(len(np.load(path)) for path in files), np.load(files[0]).shape[1:])
back = ray.data.read_numpy(str(folder / "npy"))
print("read:", back.count(), back.columns(), int(sum(row["data"].sum() for row in back.take_all())))
np.save(folder / "flat.npy", np.arange(5) * 1.5)
print("flat:", sorted(row["data"] for row in ray.data.read_numpy(str(folder / "flat.npy")).take_all()))

samples = ray.data.from_items(
    [
        {"__key__": f"{i:03}", "txt": f"caption {i}", "cls": i % 3, "json": {"id": i, "tags": ["a"] * i}}
        for i in range(6)
    ]
)
samples.write_webdataset(str(folder / "shards"))
names = sorted(name for path in (folder / "shards").glob("*.tar") for name in tarfile.open(path).getnames())
print("in the shards:", len(names), names[:3])
loaded = sorted(ray.data.read_webdataset(str(folder / "shards")).take_all(), key=lambda row: row["__key__"])
print("samples:", len(loaded), [(row["txt"], row["cls"]) for row in loaded[:2]], loaded[2]["json"])

shard = folder / "hand.tar"
with tarfile.open(shard, "w") as tar:
    for i in range(3):
        for ending, content in (
            ("txt", f"line {i}".encode()),
            ("bin", bytes([i] * 4)),
            ("cls", str(i).encode()),
        ):
            member = tarfile.TarInfo(f"sample{i}.{ending}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
chosen = ray.data.read_webdataset(str(shard), suffixes=["txt", "bin"])
print("chosen:", sorted((row["__key__"], row["txt"], row["bin"]) for row in chosen.take_all()))
raw = ray.data.read_webdataset(str(shard), decoder=None).sort("__key__").take(1)[0]
print("not decoded:", raw["txt"], raw["cls"])


class Named(FilenameProvider):
    """The names of rows are made of that of their task."""

    def __init__(self, ending):
        super().__init__()
        self.ending = ending

    def get_filename_for_task(self, write_uuid, task_index):
        return f"part-{task_index}.{self.ending}"


pictures = ray.data.from_items(
    [{"image": np.full((4, 5, 3), 40 * i, np.uint8)} for i in range(4)], override_num_blocks=1
)
pictures.write_images(str(folder / "png"), column="image", filename_provider=Named("png"))
print("named:", sorted(path.name for path in (folder / "png").iterdir()))
seen = ray.data.read_images(str(folder / "png"), include_paths=True)
print(
    "pictures:",
    sorted((pathlib.Path(row["path"]).stem[-1], int(row["image"].mean())) for row in seen.take_all()),
)
named = ray.data.range(4, override_num_blocks=1)
named.write_csv(str(folder / "csv"), filename_provider=Named("csv"))
print("a file of a task:", sorted(path.name for path in (folder / "csv").iterdir()))
