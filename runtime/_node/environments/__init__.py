"""Runtime environments of a node: fetched, unpacked and installed once, kept while they are used and for a while after.

`Environments` is what the rest of the node agent needs; `builder` makes what they are made of.
"""

from .place import Container, Interpreter, Preload, WorkerPlace
from .service import Environments

__all__ = ["Container", "Environments", "Interpreter", "Preload", "WorkerPlace"]
