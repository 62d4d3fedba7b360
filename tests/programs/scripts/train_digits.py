"""Digits drawn in an 8x8 font, with noise, are learned by two workers from shards of a data set.

The training fails once after it has a checkpoint, and goes on from there.
"""

import os
import pathlib
import tempfile

import numpy as np
import ray
import ray.train
import torch
import torch.distributed
from ray.train.torch import TorchTrainer, get_device, prepare_model

FONT = [
    "3c666e7666663c00 1838181818187e00 3c66060c30607e00 3c66061c06663c00 060e1e667f060600",
    "7e607c0606663c00 3c66607c66663c00 7e660c1818181800 3c66663c66663c00 3c66663e06663c00",
]
GLYPHS = np.array(
    [np.unpackbits(np.frombuffer(bytes.fromhex(each), np.uint8)) for line in FONT for each in line.split()],
    np.float32,
)
ROWS, EPOCHS, BATCH = 1280, 4, 32


def draw(batch):
    noise = np.random.default_rng(int(batch["id"][0]))
    digit = batch["id"] % 10
    image = GLYPHS[digit] + noise.normal(0, 0.4, (len(digit), 64)).astype(np.float32)
    return {"image": image, "digit": digit}


def train_function(config):
    context = ray.train.get_context()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    begin = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        begin = state["epoch"] + 1
    model = prepare_model(model)
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(begin, EPOCHS):
        if epoch == 2 and begin == 0 and context.get_world_rank() == 1:
            raise RuntimeError("the second worker fails in epoch 2")
        right = torch.zeros(2)
        for batch in shard.iter_torch_batches(batch_size=BATCH, device=get_device()):
            scores = model(batch["image"])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(scores, batch["digit"]).backward()
            optimizer.step()
            right += torch.tensor([(scores.argmax(1) == batch["digit"]).sum().item(), len(scores)])
        torch.distributed.all_reduce(right)
        metrics = {
            "epoch": epoch,
            "rows": int(right[1]),
            "accuracy": right[0].item() / right[1].item(),
            "begin": begin,
        }
        if context.get_world_rank() != 0:
            ray.train.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"epoch": epoch, "model": model.module.state_dict()}, os.path.join(folder, "state.pt"))
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


ray.init(num_cpus=4, log_to_driver=False)
store = tempfile.mkdtemp()
trainer = TorchTrainer(
    train_function,
    train_loop_config={"lr": 0.01},
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(
        name="digits",
        storage_path=store,
        failure_config=ray.train.FailureConfig(max_failures=1),
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
    ),
    datasets={"train": ray.data.range(ROWS, override_num_blocks=8).map_batches(draw, batch_size=160)},
)
result = trainer.fit()
print("epoch:", result.metrics["epoch"], "rows:", result.metrics["rows"])
print("it went on from epoch", result.metrics["begin"])
print("it learns:", result.metrics["accuracy"] > 0.95)
print("error:", result.error)
print("its folder is", os.path.relpath(result.path, store))
print("checkpoints kept:", len(result.best_checkpoints))
for checkpoint, metrics in result.best_checkpoints:
    with checkpoint.as_directory() as folder:
        files = sorted(each.name for each in pathlib.Path(folder).iterdir() if not each.name.startswith("."))
    print(metrics["epoch"], [name for name in files if name.endswith(".pt")])
with result.checkpoint.as_directory() as folder:
    state = torch.load(os.path.join(folder, "state.pt"))
print(
    "the last has epoch", state["epoch"], {name: tuple(each.shape) for name, each in state["model"].items()}
)
