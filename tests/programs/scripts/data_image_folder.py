"""A folder of pictures: they are decoded, resized, cropped, and described by their tensors."""

import pathlib
import tempfile

import numpy as np
import ray
from PIL import Image

ray.init(num_cpus=4)
folder = pathlib.Path(tempfile.mkdtemp())
for label, base in (("dark", 20), ("bright", 200)):
    (folder / label).mkdir()
    for i in range(4):
        pixels = np.full((12 + 2 * i, 16, 3), base, dtype=np.uint8)
        pixels[:, ::2, 1] += 10 * i
        Image.fromarray(pixels).save(folder / label / f"{i}.png")

same_size = ray.data.read_images(str(folder), size=(8, 6), mode="RGB", include_paths=True)
print("columns:", sorted(same_size.columns()), "rows:", same_size.count())


def describe(row):
    path = pathlib.Path(row["path"])
    image = row["image"]
    return {
        "name": f"{path.parent.name}/{path.stem}",
        "label": path.parent.name,
        "shape": "x".join(map(str, image.shape)),
        "type": str(image.dtype),
        "red": float(image[..., 0].mean()),
    }


described = same_size.map(describe)
for row in described.sort("name").take_all():
    print(row["name"], row["shape"], row["type"], round(row["red"], 1))
print(described.groupby("label").mean("red").sort("label").take_all())


def normalize(batch):
    scaled = batch["image"].astype(np.float32) / 255.0
    return {"tensor": scaled.transpose(0, 3, 1, 2), "mean": scaled.mean(axis=(1, 2, 3))}


tensors = same_size.map_batches(normalize, batch_size=3)
shapes = {
    (batch["tensor"].shape[1:], str(batch["tensor"].dtype)) for batch in tensors.iter_batches(batch_size=5)
}
print("tensors:", shapes)
print("means:", sorted(round(float(row["mean"]), 3) for row in tensors.take_all()))

as_they_are = ray.data.read_images(str(folder / "dark"))
print("heights:", sorted(row["image"].shape[0] for row in as_they_are.take_all()))
cropped = as_they_are.map(lambda row: {"image": row["image"][:4, :4]})
print("cropped:", cropped.take_batch(4)["image"].shape)
grey = ray.data.read_images(str(folder / "bright"), mode="L", size=(4, 4))
print("grey:", {row["image"].shape for row in grey.take_all()})

target = folder / "crops"
cropped.write_images(str(target), column="image", file_format="png")
again = ray.data.read_images(str(target))
print("written and read:", again.count(), again.take(1)[0]["image"].shape)
