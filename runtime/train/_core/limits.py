"""How much and how long the controller of a run waits for."""

from __future__ import annotations

TAKEN = 4
"""Batches of records that are on their way from a worker."""
LEAVE_S = 5.0
"""How long a rank may take to leave the training function; then its process is replaced."""
END_S = 30.0
"""How long that may take; then all workers are started anew."""
STACKS_S = 5.0
"""How long the stacks of the ranks are waited for, when they are wanted for an error."""
REPLACED_S = 60.0
"""How long a worker whose calls fail may take to be dead; then all are started anew."""
EXPLAINED_S = 5.0
"""How long it may take until it is known why a process has ended."""
STARTS = 10
"""So many processes for each worker may end before the training function runs; then the run ends."""
REPLACE_S = 30.0
"""How long a run whose size may change waits for the replacement of a worker at most; then it goes on with fewer."""
