"""Arrays of JAX for batches of numpy arrays, sharded by rows over all devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.data._libraries import load


def sharder(batch_size: int, dtypes: Any, paddings: Any) -> Callable[[Any], Any]:
    """What makes JAX arrays of a batch, which is an array or a dict of arrays: the rows of this process' devices.

    Args:
        dtypes: of all arrays, or a dict by column.
        paddings: what a last batch is filled up with to `batch_size`, or a dict by column; None: it is not.

    Raises:
        ImportError: JAX is not installed.
        ValueError: the rows of a batch cannot be shared equally by the devices of this process.
    """
    jax = load("jax", "iter_jax_batches")
    sharding_of = load("jax.sharding", "iter_jax_batches")
    import numpy as np

    devices = jax.local_device_count()
    if batch_size % devices:
        raise ValueError(f"batch_size {batch_size} is no multiple of the {devices} devices of this process.")
    mesh = sharding_of.Mesh(np.array(jax.devices()), ("data",))
    sharding = sharding_of.NamedSharding(mesh, sharding_of.PartitionSpec("data"))

    def array(values: Any, dtype: Any, padding: Any) -> Any:
        if padding is not None and len(values) < batch_size:
            filled = np.full((batch_size, *values.shape[1:]), padding, values.dtype)
            filled[: len(values)] = values
            values = filled
        if len(values) % devices:
            raise ValueError(
                f"A batch has {len(values)} rows, which {devices} devices cannot share: use drop_last or paddings."
            )
        if dtype is not None:
            values = values.astype(dtype)
        shape = (len(values) * jax.process_count(), *values.shape[1:])
        # A copy: JAX may keep the memory as it is, and a block's may not be kept for long.
        return jax.make_array_from_process_local_data(sharding, values.copy(), shape)

    def arrays(batch: Any) -> Any:
        if not isinstance(batch, Mapping):
            return array(batch, dtypes, paddings)
        return {name: array(values, _of(dtypes, name), _of(paddings, name)) for name, values in batch.items()}

    return arrays


def _of(values: Any, name: str) -> Any:
    return values.get(name) if isinstance(values, Mapping) else values
