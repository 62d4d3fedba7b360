"""What the launcher knows of local machines."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.spec.definition import ClusterSpec, Docker
from clusterctl.spec.positions import Path
from clusterctl.spec.reader import Reader

from ..ownership import Ownership
from ..protocol import Entry, OperatorProvider, Seat
from .config import LocalNodeConfig, LocalProvider


def _make(spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat) -> OperatorProvider:
    from .provider import LocalMachines

    config = spec.provider
    assert isinstance(config, LocalProvider)
    root = settings.get("root") or config.root
    return LocalMachines(cluster_id, Ownership(settings).owner, root=root, listing_lag_s=config.listing_lag_s)


def _check(spec: ClusterSpec, reader: Reader) -> None:
    """They are processes of this host, so that some of what a spec can ask for is not theirs to do."""
    dockers: dict[Path, Docker | None] = {("docker",): spec.docker}
    node_dirs: dict[Path, str] = {("node_dir",): spec.node_dir}
    for name, kind in spec.available_node_types.items():
        dockers["available_node_types", name, "docker"] = kind.docker
        node_dirs["available_node_types", name, "node_dir"] = kind.node_dir
    for path, docker in dockers.items():
        if docker is not None and (docker.image or docker.head_image or docker.worker_image):
            words = "machines of provider type local are processes of this host and run no containers"
            reader.problem_at(path, words)
    for path, folder in node_dirs.items():
        if folder.startswith(("/", "~/")):  # what does not is reported for all types
            reader.problem_at(path, "a local machine keeps everything in its own folder: set provider.root")
    if not spec.runtime.shares_machines:
        words = (
            "cannot run on local machines, because its nodes on one host end each other; use another provider"
        )
        reader.problem_at(("runtime", "kind"), f"{spec.runtime.name} {words}")


ENTRY = Entry(make=_make, node_config=LocalNodeConfig, has_markets=False, check=_check)
