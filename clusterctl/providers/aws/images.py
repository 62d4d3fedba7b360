"""Which image a machine starts from: by id, by the name of a family, or by default the one whose Python is ours.

Families are looked up where their makers publish the newest image of each region (public parameters of SSM), or, where
we may not read these, among the makers' images.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.provider import Auth, Config, NodeType, NotFound, ProviderError

from .clients import Clients

_DEBIAN, _CANONICAL, _AMAZON = "136693071363", "099720109477", "amazon"


@dataclass(frozen=True, slots=True)
class Family:
    """Images of one kind. `{arch}` is x86_64 or arm64, `{deb}` amd64 or arm64; `python` is what `python3` is there."""

    parameter: str
    owner: str
    pattern: str
    user: str
    python: tuple[int, int]


def _ubuntu(release: str, name: str, disk: str, python: tuple[int, int]) -> Family:
    return Family(
        f"/aws/service/canonical/ubuntu/server/{release}/stable/current/{{deb}}/hvm/{disk}/ami-id",
        _CANONICAL,
        f"ubuntu/images/hvm-ssd*/ubuntu-{name}-{release}-{{deb}}-server-*",
        "ubuntu",
        python,
    )


def _debian(release: str, python: tuple[int, int]) -> Family:
    return Family(
        f"/aws/service/debian/release/{release}/latest/{{deb}}",
        _DEBIAN,
        f"debian-{release}-{{deb}}-*",
        "admin",
        python,
    )


def _deep_learning(system: str, words: str, user: str, python: tuple[int, int]) -> Family:
    return Family(
        f"/aws/service/deeplearning/ami/{{arch}}/base-oss-nvidia-driver-gpu-{system}/latest/ami-id",
        _AMAZON,
        f"Deep Learning* Base OSS Nvidia Driver GPU AMI ({words}) *",
        user,
        python,
    )


FAMILIES: Mapping[str, Family] = {
    "debian-12": _debian("12", (3, 11)),
    "debian-13": _debian("13", (3, 13)),
    "ubuntu-22.04": _ubuntu("22.04", "jammy", "ebs-gp2", (3, 10)),
    "ubuntu-24.04": _ubuntu("24.04", "noble", "ebs-gp3", (3, 12)),
    "amazon-linux-2023": Family(
        "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{arch}",
        _AMAZON,
        "al2023-ami-2023*-{arch}",
        "ec2-user",
        (3, 9),
    ),
    "dlami-ubuntu-24.04": _deep_learning("ubuntu-24.04", "Ubuntu 24.04", "ubuntu", (3, 12)),
    "dlami-ubuntu-22.04": _deep_learning("ubuntu-22.04", "Ubuntu 22.04", "ubuntu", (3, 10)),
    "dlami-amazon-linux-2023": _deep_learning("amazon-linux-2023", "Amazon Linux 2023", "ec2-user", (3, 9)),
}
"""What `ImageId` may be besides an id."""

_ALIASES = {
    "dlami": "dlami-ubuntu-24.04",
    "latest_dlami": "dlami-ubuntu-24.04",
    "al2023": "amazon-linux-2023",
}
_BY_PYTHON = {(3, 11): "debian-12", (3, 12): "ubuntu-24.04", (3, 13): "debian-13"}
_GPU_BY_PYTHON = {(3, 12): "dlami-ubuntu-24.04"}
"""With the driver of NVIDIA's GPUs."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image.

    Attributes:
        user: whom one is there by SSH; "" when nothing says.
        root_device: what its first disk is called.
        python: what `python3` is there; None when unknown.
    """

    id: str
    name: str
    architecture: str
    user: str
    root_device: str
    python: tuple[int, int] | None = None


def default_family(python: tuple[int, int] = sys.version_info[:2], gpus: bool = False) -> str:
    """The family whose Python is that one. Pure.

    Raises:
        Config: none is known.
    """
    found = (_GPU_BY_PYTHON.get(python) if gpus else None) or _BY_PYTHON.get(python)
    if found is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in sorted(_BY_PYTHON))
        raise Config(
            f"no image is known whose Python is {python[0]}.{python[1]}, as here: name one (node_config.ImageId), or "
            f"use Python {known}"
        )
    return found


def family(name: str) -> Family | None:
    """The family of that name. Pure."""
    return FAMILIES.get(_ALIASES.get(name, name))


def own_parameters(node_types: Sequence[NodeType]) -> list[str]:
    """The account's own parameters of SSM that name the types' images. Pure."""
    named = (str(kind.node_config.get("ImageId", "")) for kind in node_types)
    found = {name.rpartition("ssm:")[2] for name in named if name.startswith(("ssm:", "resolve:ssm:"))}
    return sorted(name for name in found if not name.startswith("/aws/service/"))


def login_user(image: Mapping[str, Any]) -> str:
    """Whom one is on a machine of an image, by its maker and its name; "" when nothing says. Pure."""
    owner, name = str(image.get("OwnerId", "")), str(image.get("Name", "")).lower()
    words = f"{name} {str(image.get('Description', '')).lower()}"
    if owner == _DEBIAN or name.startswith("debian-"):
        return "admin"
    for word, user in (
        ("amazon linux", "ec2-user"),
        ("ubuntu", "ubuntu"),
        ("al2023-", "ec2-user"),
        ("amzn", "ec2-user"),
        ("rhel", "ec2-user"),
        ("suse", "ec2-user"),
        ("rocky", "rocky"),
        ("fedora", "fedora"),
        ("debian", "admin"),
    ):
        if word in words:
            return user
    return ""


def find(clients: Clients, wanted: str, architecture: str) -> Image:
    """The image of an id (`ami-...`), a family or a parameter of SSM (`ssm:/path`) for machines of that architecture.

    Raises:
        Config: there is none.
    """
    known = family(wanted)
    if wanted.startswith(("ami-", "ssm:", "resolve:ssm:")):
        image_id = wanted if wanted.startswith("ami-") else _parameter(clients, wanted.rpartition("ssm:")[2])
    elif known is not None:
        image_id = _newest(clients, known, architecture)
    else:
        raise Config(
            f"ImageId '{wanted}' is no image: give an id (ami-...), or one of {', '.join(sorted(FAMILIES))}"
        )
    try:
        answer = clients.ec2("describe_images", ImageIds=[image_id])
    except NotFound:
        answer = {}
    if not answer.get("Images"):
        raise Config(f"there is no image {image_id} in {clients.place.region}, or it is not for this account")
    (described,) = answer["Images"]
    return Image(
        image_id,
        str(described.get("Name", "")),
        str(described.get("Architecture", "x86_64")),
        known.user if known else login_user(described),
        str(described.get("RootDeviceName", "")),
        known.python if known else None,
    )


def _names(architecture: str) -> dict[str, str]:
    return {"arch": architecture, "deb": "arm64" if architecture == "arm64" else "amd64"}


def _parameter(clients: Clients, name: str) -> str:
    try:
        answer = clients.call("ssm", "get_parameter", Name=name)
    except NotFound as error:
        raise Config(f"ImageId: SSM has no parameter {name} in {clients.place.region}") from error
    return str(answer["Parameter"]["Value"])


def _newest(clients: Clients, known: Family, architecture: str) -> str:
    names = _names(architecture)
    try:
        answer = clients.call("ssm", "get_parameter", Name=known.parameter.format(**names))
        return str(answer["Parameter"]["Value"])
    except (NotFound, Auth, Config) as error:
        refusal: ProviderError = error
    found = clients.pages(
        "describe_images",
        "Images",
        Owners=[known.owner],
        Filters=[
            {"Name": "name", "Values": [known.pattern.format(**names)]},
            {"Name": "architecture", "Values": [architecture]},
            {"Name": "state", "Values": ["available"]},
        ],
    )
    newest = max(found, key=lambda image: str(image.get("CreationDate", "")), default=None)
    if newest is None:
        raise Config(
            f"no image {known.pattern.format(**names)} is to be had in {clients.place.region}: {refusal}"
        )
    return str(newest["ImageId"])
