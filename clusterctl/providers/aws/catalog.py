"""What a region has to offer for a node type: its instance type, in which zones, and the image. Asked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from autoscaler.provider import Auth, Config, NodeType, NotFound, ProviderError

from . import images, launches, types
from .clients import Clients
from .images import Image
from .types import InstanceType


class Catalog:
    """The catalogue of one region. Safe to use from any thread.

    Attributes:
        zones: those that have machines of an instance type.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._type = cache(self._ask_type)
        self.zones = cache(self._ask_zones)
        self._image = cache(partial(images.find, clients))
        self._templates: dict[str, Mapping[str, Any]] = {}

    def instance_type(self, node_type: NodeType) -> InstanceType:
        """The instance type of a node type.

        Raises:
            Config: there is none of that name in the region.
        """
        name = str(self._setting(node_type, "InstanceType")) or launches.INSTANCE_TYPE
        found = self._type(name)
        if found is None:
            region = self._clients.place.region
            raise Config(f"node type {node_type.name}: there is no instance type {name} in {region}")
        return found

    def image(self, node_type: NodeType) -> Image:
        """The image of a node type: the one it names, or the one whose Python is ours."""
        kind = self.instance_type(node_type)
        wanted = str(self._setting(node_type, "ImageId")) or images.default_family(gpus=kind.has_gpus)
        return self._image(wanted, kind.architecture)

    def names_image(self, node_type: NodeType) -> bool:
        """Whether a node type says which image it wants."""
        return bool(self._setting(node_type, "ImageId"))

    def whole(self, node_type: NodeType) -> NodeType:
        """The type with what its launch template says."""
        return replace(node_type, node_config={**self.template(node_type), **node_type.node_config})

    def template(self, node_type: NodeType) -> Mapping[str, Any]:
        """What the launch template of a type says; nothing where it names none.

        Raises:
            Config: there is no such template.
        """
        named = node_type.node_config.get("LaunchTemplate")
        if not named:
            return {}
        key = repr(sorted(named.items()))
        if key not in self._templates:
            which = {k: v for k, v in named.items() if k in ("LaunchTemplateId", "LaunchTemplateName")}
            version = str(named.get("Version", "$Default"))
            try:
                answer = self._clients.ec2("describe_launch_template_versions", Versions=[version], **which)
            except NotFound as error:
                raise Config(_of_template(node_type, error)) from error
            except (Auth, Config) as error:
                raise type(error)(_of_template(node_type, error)) from error
            self._templates[key] = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        return self._templates[key]

    # -- inside

    def _ask_type(self, name: str) -> InstanceType | None:
        try:
            found = self._clients.ec2("describe_instance_types", InstanceTypes=[name])["InstanceTypes"]
        except Config as error:
            if "InvalidInstanceType" not in str(error):
                raise
            return None
        return types.read(found[0]) if found else None

    def _ask_zones(self, instance_type: str) -> frozenset[str]:
        found = self._clients.pages(
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [instance_type]}],
        )
        return frozenset(str(one["Location"]) for one in found)

    def _setting(self, node_type: NodeType, name: str) -> Any:
        return self.whole(node_type).node_config.get(name, "")


def _of_template(node_type: NodeType, error: ProviderError) -> str:
    return f"node type {node_type.name}: node_config.LaunchTemplate: {error}"
