"""Types for annotations."""

from runtime.object_ref import ObjectRef

__all__ = ["ObjectRef"]
