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
<<<<<<< HEAD
=======

StreamingObjectRefGenerator = ObjectRefGenerator
>>>>>>> 33c38cd (DynamicObjectRefGenerator is public; the generators' names in ray._raylet)

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
