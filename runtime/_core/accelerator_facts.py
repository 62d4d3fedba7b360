"""What a node with accelerators says of itself beyond their number: resources and labels. Pure.

For kinds whose type follows from the resource, or from variables that the platform sets. GPUs are asked themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .labels import ACCELERATOR_TYPE, TPU_POD_TYPE, TPU_SLICE, TPU_TOPOLOGY, TPU_WORKER

_NEURON = "aws-neuron-core"


class TpuSlice(msgspec.Struct, frozen=True):
    """What Google's platforms tell a host of a TPU slice; "" for what they do not.

    Attributes:
        pod_type: generation and chips or cores of the slice, "v4-16".
        name: the same on all hosts of the slice.
        worker_id: the host's number in the slice, from 0.
        topology: "2x2x2".
    """

    pod_type: str = ""
    name: str = ""
    worker_id: str = ""
    topology: str = ""


class Facts(msgspec.Struct, frozen=True):
    """Further resources and labels of a node."""

    resources: dict[str, float]
    labels: dict[str, str]


def known_by_amount(amounts: Mapping[str, float], tpu: TpuSlice) -> list[Facts]:
    """The facts of a node that offers `amounts`.

    Besides its type, each host of a TPU slice offers one of the slice's name, so that one task can run on each host.
    The first host offers one of `TPU-<pod type>-head`, so that a program finds a whole slice.
    """
    facts = []
    if amounts.get("neuron_cores"):
        facts.append(_of_type(_NEURON))
    if amounts.get("TPU") and tpu.pod_type:
        made = _of_type(f"TPU-{tpu.pod_type.partition('-')[0].upper()}")
        made.labels[TPU_POD_TYPE] = tpu.pod_type
        if tpu.name and tpu.worker_id:
            made.labels.update({TPU_SLICE: tpu.name, TPU_WORKER: tpu.worker_id})
            made.resources[tpu.name] = 1.0
            if tpu.worker_id == "0":
                made.resources[f"TPU-{tpu.pod_type}-head"] = 1.0
            if tpu.topology:
                made.labels[TPU_TOPOLOGY] = tpu.topology
        facts.append(made)
    return facts


def _of_type(name: str) -> Facts:
    return Facts({f"accelerator_type:{name}": 1.0}, {ACCELERATOR_TYPE: name})
