"""Ids of deployments, replicas and requests."""

from runtime.serve.context import DeploymentID, ReplicaID
from runtime.serve.request_router import RequestMetadata

__all__ = ["DeploymentID", "ReplicaID", "RequestMetadata"]
