"""Buys workers where no autoscaler does. What a platform is asked for is written down first, with the token that makes
the question safe to repeat: so an `up` that was killed in the middle, and is run again, finds what it bought, though no
listing may show it yet."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from functools import partial

from autoscaler.provider import (
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineState,
    NodeType,
    Offer,
    ProviderError,
    Transient,
)
from clusterctl.errors import SetupFailed, from_provider
from clusterctl.home import ClusterRecord, Home, Launch
from clusterctl.providers.protocol import OperatorProvider

from . import machines

_HIDDEN_S = 600.0
"""What was asked for longer ago is in the listing or was never made. Platforms know a token for longer."""


class Buyer:
    """Of one cluster, in one run of `up`."""

    def __init__(self, home: Home, record: ClusterRecord, provider: OperatorProvider) -> None:
        self._home = home
        self._record = record
        self._provider = provider

    def existing(self) -> list[Machine]:
        """Every machine of the cluster that still exists in any state, those of unfinished launches included: each of
        these is asked for once more with its token. So machines may be made here that an earlier run did not get."""
        try:
            found = {machine.id: machine for machine in machines.patiently(self._provider.list)}
            told = {machine.instance_id for machine in found.values()}
            for launch in self._record.launches:
                is_recent = abs(time.time() - launch.asked_s) < _HIDDEN_S
                if is_recent and not told.issuperset(launch.request.instance_ids):
                    for machine in self._asked_again(launch.request):
                        found.setdefault(machine.id, machine)
        except ProviderError as error:
            raise from_provider(error) from error
        return [machine for machine in found.values() if machine.state is not MachineState.GONE]

    def buy(self, kind: NodeType, count: int, tags: Mapping[str, str]) -> list[Machine]:
        """So many new machines of a type, from the best offers.

        Raises:
            CliError: there are fewer; those that there are stay.
        """
        made: list[Machine] = []
        problem: ProviderError | None = None
        try:
            for offer in machines.patiently(lambda: self._provider.offers(kind)):
                while (missing := min(count - len(made), self._provider.capabilities.max_per_create)) > 0:
                    request = self._request(kind, missing, offer, tags)
                    launched = self._launch(request)
                    made.extend(launched.machines)
                    if len(launched.machines) < missing:
                        problem = next(iter(launched.errors), problem)
                        break
        except ProviderError as error:
            problem = error
        if len(made) == count:
            return made
        raise (
            from_provider(problem)
            if problem
            else SetupFailed(
                f"{count - len(made)} of {count} {kind.name} could not be had: the offers do not suffice"
            )
        )

    def finish(self) -> None:
        """All that was bought has been seen to run: nothing has to be asked for again."""
        self._remember([])

    # -- inside

    def _asked_again(self, request: LaunchRequest) -> tuple[Machine, ...]:
        try:
            return machines.patiently(partial(self._provider.create, request)).machines
        except Transient:
            raise  # nobody knows whether there are any
        except ProviderError:
            return ()  # it is not to be had any more, and was not before

    def _request(self, kind: NodeType, count: int, offer: Offer, tags: Mapping[str, str]) -> LaunchRequest:
        token = f"{self._record.cluster_id}-{secrets.token_hex(4)}"
        return LaunchRequest(
            token=token,
            node_type=kind,
            count=count,
            offer=offer,
            tags=tags,
            instance_ids=tuple(f"{token}-{number}" for number in range(count)),
        )

    def _launch(self, request: LaunchRequest) -> LaunchResult:
        self._remember([*self._record.launches, Launch(request, time.time())])
        launched = machines.patiently(partial(self._provider.create, request))
        if not launched.machines:
            self._remember([one for one in self._record.launches if one.request is not request])
        return launched

    def _remember(self, launches: list[Launch]) -> None:
        self._record.launches = launches
        self._home.write(self._record)
