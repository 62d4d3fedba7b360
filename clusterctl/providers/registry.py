"""Makes the provider of a spec."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from clusterctl.errors import UsageProblem
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.platforms.aws import AwsProvider
from clusterctl.spec.platforms.external import ExternalProvider
from clusterctl.spec.platforms.gcp import GcpProvider
from clusterctl.spec.platforms.local import LocalProvider
from clusterctl.spec.platforms.ssh import SshProvider

from . import external
from .ownership import Ownership
from .protocol import MEMBERS, ForHead, OperatorProvider

_NEEDS = {"ssh": ("paramiko",), "aws": ("paramiko", "boto3"), "gcp": ("paramiko", "google.cloud.compute_v1")}
"""Extra, called as the platform is -> the modules that it brings."""


def make(spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str]) -> OperatorProvider:
    """The provider of a spec, for one cluster.

    Args:
        settings: "owner_file" (see `ownership`) and "folder" (for what the provider keeps of the cluster), or all of
            another such provider's `settings()`.

    Raises:
        UsageProblem: what the platform's machines are reached with is not installed here, or the class of an external
            provider cannot be used.
    """
    config = spec.provider
    _require(str(config.__struct_config__.tag))
    if isinstance(config, SshProvider):
        from clusterctl.providers.ssh.provider import SshMachines

        return SshMachines(spec, cluster_id, settings)
    if isinstance(config, GcpProvider):
        from clusterctl.providers.gcp.provider import GcpMachines

        return GcpMachines(spec, cluster_id, settings)
    if isinstance(config, LocalProvider):
        from clusterctl.providers.local.provider import LocalMachines

        root = settings.get("root") or config.root
        return LocalMachines(
            cluster_id, Ownership(settings).owner, root=root, listing_lag_s=config.listing_lag_s
        )
    if isinstance(config, AwsProvider):
        from clusterctl.providers.aws.provider import AwsMachines

        return AwsMachines(spec, cluster_id, settings)
    if isinstance(config, ExternalProvider):
        return external.load(config, settings, MEMBERS)(spec, cluster_id, settings)
    raise UsageProblem(f"provider type '{config.__struct_config__.tag}' is not available in this version")


def for_head(spec: ClusterSpec, provider: OperatorProvider) -> ForHead:
    """What the head needs to make a provider again, the module of an external one included."""
    given = provider.for_head()
    if not isinstance(spec.provider, ExternalProvider):
        return given
    return ForHead(
        {**given.settings, **external.settings_for_head()},
        (*given.files, *external.files_for_head(spec.provider)),
    )


def _require(platform: str) -> None:
    """Before anything begins, and in one place: what is found missing later would be a traceback."""
    for module in _NEEDS.get(platform, ()):
        if not _is_there(module):
            raise UsageProblem(
                f"clusters of provider type '{platform}' need the Python package of {module}, which is not installed",
                f"Install it: pip install 'clusterctl[{platform}]'",
            )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # one that it lies in is missing
        return False
