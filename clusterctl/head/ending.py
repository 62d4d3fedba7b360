"""How a head ends its cluster: the workers' machines first, and its own as the last thing that it does.

What has begun is not called off: whatever fails costs one attempt. A cluster that were left half ended would have no
autoscaler, take no jobs, and cost as before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from autoscaler.provider import SPOT, Machine, NotFound, ProviderError
from clusterctl.errors import CliError
from clusterctl.launcher import machines
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.startup import lease_guard

log = logging.getLogger(__name__)

_TRIES = 5
_AGAIN_S = 10.0


def end_workers(provider: OperatorProvider, known: Collection[str] = ()) -> None:
    """Ends the workers' machines, and raises nothing: those that cannot be ended now end by themselves, without a head.

    Args:
        known: machines that there were, which a listing of now may leave out because they were slow to answer.
    """
    left = set(known)
    for attempt in range(1, _TRIES + 1):
        if attempt > 1:
            time.sleep(_AGAIN_S)
        try:
            listed = {machine.id for machine in machines.existing(provider) if not machine.is_head}
            answers = provider.terminate(sorted(listed | left)) if listed | left else {}
            left = {id for id, error in answers.items() if not isinstance(error, NotFound | None)}
            if listed:
                machines.end_all(provider, only=listed)
            if not left:
                return
            log.error("ending the workers, attempt %d: %s do not end", attempt, ", ".join(sorted(left)))
        except (CliError, ProviderError) as error:
            log.error("ending the workers, attempt %d: %s", attempt, error)
        except Exception:
            log.exception("ending the workers, attempt %d", attempt)


def end_own(provider: OperatorProvider, down: bool) -> None:
    """Ends the head's machine, on which this runs, for good or until the next `up`. Raises nothing; may not return."""
    for attempt in range(1, _TRIES + 1):
        if attempt > 1:
            time.sleep(_AGAIN_S)
        try:
            own = machines.head_of(provider.list())
            if own is None:
                return
            _end(provider, own, down)
            return
        except ProviderError as error:
            log.error("ending the own machine, attempt %d: %s", attempt, error)
        except Exception:
            log.exception("ending the own machine, attempt %d", attempt)
    if provider.capabilities.shutdown_ends:
        lease_guard.shut_down()  # the platform does not do it, so the machine does


def _end(provider: OperatorProvider, own: Machine, down: bool) -> None:
    if (
        not down and provider.capabilities.stop_start and own.market != SPOT
    ):  # clouds do not stop spot machines
        provider.stop([own.id])
        return
    refused = provider.terminate([own.id])[own.id]
    if refused is not None:
        raise refused
