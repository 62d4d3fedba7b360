"""What the launcher knows of Google Compute Engine."""

from __future__ import annotations

import yaml

from clusterctl.spec import editing
from clusterctl.spec.positions import Path, Problem, at
from clusterctl.spec.provider_type import RaysCloud

from ..protocol import Entry
from .machine_names import MACHINE_TYPES
from .metadata import NOTICES


def _translate(config: yaml.MappingNode, path: Path) -> list[Problem]:
    notes = []
    for name in ("acceleratorType", "acceleratorConfig"):
        key = editing.key_of(config, name)
        if key is not None:
            editing.pop(config, name)
            words = (
                "not supported yet: TPU machines, which need Google's TPU API, are planned. Until then make them with "
                "`gcloud compute tpus tpu-vm create` and name them in a file of provider type ssh; GPUs are "
                "guestAccelerators"
            )
            notes.append(at(key, (*path, name), words))
    scheduling = editing.get(config, "scheduling")
    if isinstance(scheduling, yaml.SequenceNode) and scheduling.value:
        # A list of mappings, as Ray's own files have it; the API takes one.
        editing.pop(config, "scheduling")
        entries = [
            pair for part in scheduling.value if isinstance(part, yaml.MappingNode) for pair in part.value
        ]
        merged = editing.mapping(scheduling, [])
        merged.value.extend(entries)
        editing.put(config, "scheduling", merged)
    return notes


ENTRY = Entry(
    extra="gcp",
    modules=("paramiko", "google.cloud.compute_v1"),
    notices=NOTICES,
    machine_types=MACHINE_TYPES,
    rays=RaysCloud(
        head_type="ray_head_default",
        implied={"machineType": "n1-standard-2"},
        refused={
            "gcp_credentials": "keys do not belong into a file that is copied to machines: set "
            "GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
        },
        translate=_translate,
    ),
)
