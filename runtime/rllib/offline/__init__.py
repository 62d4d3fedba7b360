"""Recorded experience: reading it for learners, writing it from runners."""

from __future__ import annotations

from typing import Any

_OLD_READERS = "config.offline_data(input_=..., input_read_method=...) reads tables of runtime.data"
_OLD_WRITERS = "config.offline_data(output=...) records what runners sample"
_OLD_ESTIMATES = (
    "config.evaluation(offline_evaluation_type='eval_loss', 'is' or 'pdis') evaluates on recorded data"
)

# Names of the old API stack -> what there is in their place.
_OLD = {
    **dict.fromkeys(
        ("D4RLReader", "DatasetReader", "InputReader", "JsonReader", "MixedInput", "ShuffledInput"),
        _OLD_READERS,
    ),
    **dict.fromkeys(("get_dataset_and_shards",), _OLD_READERS),
    **dict.fromkeys(("DatasetWriter", "IOContext", "JsonWriter", "NoopOutput", "OutputWriter"), _OLD_WRITERS),
    **dict.fromkeys(
        (
            "DirectMethod",
            "DoublyRobust",
            "ImportanceSampling",
            "OffPolicyEstimator",
            "WeightedImportanceSampling",
        ),
        _OLD_ESTIMATES,
    ),
}


def __getattr__(name: str) -> Any:
    if name in _OLD:
        raise ImportError(f"{name} belongs to RLlib's old API stack, which is not here: {_OLD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
