"""How much a learner has trained, as metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..._core.types import ALL_MODULES, ModuleID
from ...utils.metrics import (
    DATASET_NUM_ITERS_TRAINED,
    DATASET_NUM_ITERS_TRAINED_LIFETIME,
    MODULE_TRAIN_BATCH_SIZE_MEAN,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    WEIGHTS_SEQ_NO,
)


def log_steps_trained(
    metrics: Any, steps: Mapping[ModuleID, list[int]], weights_seq_no: int, *, is_stream: bool
) -> None:
    """Logs what the minibatches of an update had.

    Args:
        metrics: a MetricsLogger.
        steps: module id -> steps in each minibatch.
        weights_seq_no: number of the update.
        is_stream: whether the batches came from a data iterator.
    """
    for module_id, counts in steps.items():
        total = sum(counts)
        metrics.log_value((module_id, WEIGHTS_SEQ_NO), weights_seq_no, window=1)
        metrics.log_value((module_id, MODULE_TRAIN_BATCH_SIZE_MEAN), total / len(counts), reduce="mean")
        metrics.log_value((module_id, NUM_MODULE_STEPS_TRAINED), total, reduce="sum")
        metrics.log_value(
            (module_id, NUM_MODULE_STEPS_TRAINED_LIFETIME), total, reduce="lifetime_sum", with_throughput=True
        )
    modules = sum(sum(counts) for counts in steps.values())
    envs = sum(max(each) for each in zip(*_filled(steps.values()), strict=True))
    for name, lifetime, value in (
        (NUM_MODULE_STEPS_TRAINED, NUM_MODULE_STEPS_TRAINED_LIFETIME, modules),
        (NUM_ENV_STEPS_TRAINED, NUM_ENV_STEPS_TRAINED_LIFETIME, envs),
    ):
        metrics.log_value((ALL_MODULES, name), value, reduce="sum", with_throughput=True)
        metrics.log_value((ALL_MODULES, lifetime), value, reduce="lifetime_sum", with_throughput=True)
    if is_stream:
        count = max((len(counts) for counts in steps.values()), default=0)
        metrics.log_value((ALL_MODULES, DATASET_NUM_ITERS_TRAINED), count, reduce="sum")
        metrics.log_value((ALL_MODULES, DATASET_NUM_ITERS_TRAINED_LIFETIME), count, reduce="lifetime_sum")


def _filled(counts: Collection[list[int]]) -> list[list[int]]:
    """The lists with zeros at the end, as long as the longest."""
    longest = max((len(each) for each in counts), default=0)
    return [each + [0] * (longest - len(each)) for each in counts]
