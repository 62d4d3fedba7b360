"""`ray._raylet`: ids, references and generators."""

from runtime._core.ids import (
    ActorClassID,
    ActorID,
    BaseID,
    ClusterID,
    FunctionID,
    JobID,
    NodeID,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from runtime.exceptions import ObjectRefStreamEndOfStreamError
from runtime.object_ref import ObjectID, ObjectRef
from runtime.object_ref_generator import DynamicObjectRefGenerator, ObjectRefGenerator

StreamingObjectRefGenerator = ObjectRefGenerator

__all__ = [
    "ActorClassID",
    "ActorID",
    "BaseID",
    "ClusterID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "ObjectRefStreamEndOfStreamError",
    "PlacementGroupID",
    "StreamingObjectRefGenerator",
    "TaskID",
    "UniqueID",
    "WorkerID",
]
