"""What the launcher knows of Amazon EC2."""

from __future__ import annotations

import re

from clusterctl.artefacts.architectures import MachineTypes
from clusterctl.spec.provider_type import RaysCloud

from ..protocol import Entry
from .metadata import NOTICES

_BOTOCORE = "botocore/data/"
_BOTOCORE_SERVICES = ("ec2", "iam", "pricing", "service-quotas", "ssm", "sts")
"""Of four hundred services, those that a head may ask: the rest is a hundred megabytes."""
_MACHINE_TYPES = MachineTypes(
    "InstanceType",
    # Graviton: a "g" among the letters after the generation (m7g, c6gn, im4gn, is4gen, x2gd), and the first one, a1.
    # Grace beside GPUs (p6e-gb200), and Apple's (mac2, mac-m4).
    arm64=re.compile(r"(?:a1|[a-z]+\d+[a-z]*g[a-z]*|p\d+[a-z]*-gb\d+|mac2|mac2?-m\d\w*)\..+"),
)
_RAYS = RaysCloud(
    head_type="ray.head.default",
    implied={"InstanceType": "m5.large"},
    refused={
        "aws_credentials": "keys do not belong into a file that is copied to machines: set AWS_PROFILE, or AWS's other "
        "environment variables, or provider.profile",
    },
)


def _ships(path: str) -> bool:
    """False for what botocore knows of services that no head asks."""
    folder, found, rest = path.partition(_BOTOCORE)
    service, nested, _ = rest.partition("/")
    return not (found and not folder and nested) or service in _BOTOCORE_SERVICES


ENTRY = Entry(
    extra="aws",
    modules=("paramiko", "boto3"),
    rays=_RAYS,
    notices=NOTICES,
    machine_types=_MACHINE_TYPES,
    ships=_ships,
)
