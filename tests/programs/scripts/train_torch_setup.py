"""What a training function of PyTorch finds around it: ranks, group, devices, models and data loaders."""

import os
import tempfile

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.train.collective import barrier, broadcast_from_rank_zero
from ray.train.torch import (
    TorchConfig,
    TorchTrainer,
    accelerate,
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
)
from torch.utils.data import DataLoader, TensorDataset


def train_function():
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    enable_reproducibility(7)
    seen = {
        "ranks": [
            rank,
            world,
            context.get_local_rank(),
            context.get_local_world_size(),
            context.get_node_rank(),
        ],
        "environment": [
            os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        ],
        "meeting": ["MASTER_ADDR" in os.environ, "MASTER_PORT" in os.environ],
        "group": [dist.is_initialized(), dist.get_backend(), dist.get_rank(), dist.get_world_size()],
        "devices": [str(get_device()), [str(each) for each in get_devices()]],
        "name": context.get_experiment_name(),
        "random": round(torch.rand(1).item(), 4),
    }

    model = torch.nn.Linear(2, 1)
    plain = prepare_model(model, parallel_strategy=None)
    wrapped = prepare_model(model, parallel_strategy_kwargs={"bucket_cap_mb": 1})
    seen["models"] = [plain is model, type(wrapped).__name__, getattr(wrapped, "module", wrapped) is model]
    x = torch.full((4, 2), float(rank + 1))
    wrapped(x).sum().backward()
    seen["gradient"] = model.weight.grad.flatten().tolist()

    rows = TensorDataset(torch.arange(10))
    loader = prepare_data_loader(DataLoader(rows, batch_size=2))
    seen["in order"] = [batch[0].tolist() for batch in loader]
    shuffled = prepare_data_loader(DataLoader(rows, batch_size=2, shuffle=True))
    for epoch in range(2):
        if world > 1:
            shuffled.sampler.set_epoch(epoch)
        seen[f"epoch {epoch}"] = [batch[0].tolist() for batch in shuffled]
    seen["whole"] = len(prepare_data_loader(DataLoader(rows, batch_size=2), add_dist_sampler=False))
    seen["length"] = [len(loader), type(loader.sampler).__name__, isinstance(loader, DataLoader)]

    seen["told"] = broadcast_from_rank_zero({"by": rank} if rank == 0 else None)
    barrier()
    try:
        accelerate()
    except DeprecationWarning as error:
        seen["withdrawn"] = type(error).__name__

    everyone = [None] * world
    dist.all_gather_object(everyone, seen)
    return everyone


ray.init(num_cpus=4, log_to_driver=False)
try:
    get_device()
except RuntimeError as error:
    print(type(error).__name__, "outside of a training function")
try:
    barrier()
except RuntimeError as error:
    print(type(error).__name__, "also here")
print(TorchConfig(), TorchConfig(backend="gloo", timeout_s=60).timeout_s)
for workers in (1, 2):
    trainer = TorchTrainer(
        train_function,
        torch_config=TorchConfig(backend="gloo", timeout_s=60),
        scaling_config=ray.train.ScalingConfig(num_workers=workers),
        run_config=ray.train.RunConfig(name=f"setup-{workers}", storage_path=tempfile.mkdtemp()),
    )
    try:
        result = trainer.fit()
    except Exception as error:
        print(type(error).__name__, "with", workers)
        continue
    for seen in result.return_value:
        for name, value in seen.items():
            print(f"{name}: {value}")
