"""A regression is trained with PyTorch on batches that stream in as tensors."""

import numpy as np
import ray
import torch

ray.init(num_cpus=4)
ROWS = 320


def make(batch):
    x = np.stack([np.sin(batch["id"]), np.cos(batch["id"] * 3)], axis=1).astype(np.float32)
    return {"id": batch["id"], "x": x, "y": (x @ np.array([2.0, -1.0]) + 0.5).astype(np.float32)}


dataset = ray.data.range(ROWS, override_num_blocks=4).map_batches(make)
train, test = dataset.train_test_split(test_size=0.2)
batch = next(iter(train.sort("id").iter_torch_batches(batch_size=8)))
print({name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in sorted(batch.items())})
print("ids:", batch["id"].tolist())
chosen = next(
    iter(
        train.iter_torch_batches(
            batch_size=4, dtypes={"x": torch.float64, "id": torch.int32, "y": torch.float32}
        )
    )
)
print({name: str(tensor.dtype) for name, tensor in sorted(chosen.items())})

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
shards = train.materialize()
losses = []
for epoch in range(6):
    total, rows = 0.0, 0
    for batch in shards.iter_torch_batches(
        batch_size=32, local_shuffle_buffer_size=64, local_shuffle_seed=epoch
    ):
        loss = torch.nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, rows = total + loss.item() * len(batch["y"]), rows + len(batch["y"])
    losses.append(total / rows)
print("rows of an epoch:", rows)
print("it learns:", losses[-1] < losses[0] / 50)
print(
    "weights:", [round(value, 1) for value in model.weight.detach()[0].tolist()], round(model.bias.item(), 1)
)


def collate(batch):
    return torch.as_tensor(batch["x"].copy()), torch.as_tensor(batch["y"].copy())


with torch.no_grad():
    errors = [
        (model(x).squeeze(1) - y).abs().max().item()
        for x, y in test.iter_torch_batches(batch_size=64, collate_fn=collate)
    ]
print("test batches:", len(errors), "small errors:", max(errors) < 0.2)


class Predictor:
    def __init__(self, state):
        self.model = torch.nn.Linear(2, 1)
        self.model.load_state_dict(state)

    def __call__(self, batch):
        with torch.inference_mode():
            return {"prediction": self.model(torch.as_tensor(batch["x"].copy())).numpy(), "y": batch["y"]}


predicted = test.map_batches(
    Predictor, fn_constructor_args=(model.state_dict(),), concurrency=1, batch_size=16
)
rows = predicted.take_all()
print("predictions:", len(rows), rows[0]["prediction"].shape)
print("agree:", all(abs(row["prediction"][0] - row["y"]) < 0.2 for row in rows))
from_torch = ray.data.from_torch([(i, i * i) for i in range(5)])
print(from_torch.take_all())
