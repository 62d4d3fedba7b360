"""What `docker` of a cluster and of its node types say together."""

from __future__ import annotations

import msgspec

from .definition import ClusterSpec, Docker


def docker_of(spec: ClusterSpec, node_type: str) -> Docker:
    """For nodes of a type: what it says itself goes before what the cluster says."""
    kind = spec.available_node_types.get(node_type)
    return _merged(spec.docker or Docker(), (kind and kind.docker) or Docker())


def image_of(spec: ClusterSpec, node_type: str, is_head: bool) -> str:
    """Of the container in which a node is; "": it is in none."""
    docker = docker_of(spec, node_type)
    return (docker.head_image if is_head else docker.worker_image) or docker.image


def all_in_containers(spec: ClusterSpec) -> bool:
    """Whether no node runs on a machine itself."""
    workers = (name for name in spec.available_node_types if name != spec.head_node_type)
    return bool(image_of(spec, spec.head_node_type, True)) and all(
        image_of(spec, name, False) for name in workers
    )


def _merged(common: Docker, own: Docker) -> Docker:
    """What a node type says goes before what the cluster says."""
    default = Docker()
    given = {
        name: getattr(own, name)
        for name in Docker.__struct_fields__
        if getattr(own, name) != getattr(default, name)
    }
    if "image" in given:  # of the type: what the cluster says of roles is not meant
        given = {"head_image": "", "worker_image": "", **given}
    return msgspec.structs.replace(common, **given)
