"""What is asked of the controller."""

from __future__ import annotations

from typing import Any

import msgspec

from runtime.serve._core.specs import ApplicationSpec


class Deploy(msgspec.Struct, frozen=True):
    """Answered at once, or with `waits` when all of these applications run; one that fails raises `DeployFailed`."""

    specs: list[ApplicationSpec]
    waits: bool = True


class Announce(msgspec.Struct, frozen=True):
    """These applications are being built: they have no deployments yet. `Deploy` or `Spoil` follows for each. They are
    all that is declared: other declared applications are deleted. `capacity`: in percent, see `Capacity`."""

    specs: list[ApplicationSpec]
    capacity: float | None = None


class Spoil(msgspec.Struct, frozen=True):
    """An announced application could not be built."""

    name: str
    message: str


class Delete(msgspec.Struct, frozen=True):
    """Answered once these applications are gone, or deployed again; at once without `waits`."""

    names: list[str]
    waits: bool = True


class Configure(msgspec.Struct, frozen=True):
    """The options of ingresses, unless they are given already. Answered once the ingress of the head node listens."""

    http: dict[str, Any]
    grpc: dict[str, Any]
    location: str


class WaitFor(msgspec.Struct, frozen=True):
    """Answered once all these applications have one of the states (names of `ApplicationStatus`), or are gone, if
    there is no state; after `timeout_s` with a `TimeoutError`."""

    names: list[str]
    states: list[str]
    timeout_s: float | None = None


class SetReplicas(msgspec.Struct, frozen=True):
    """Scales a deployment whose application is scaled from outside."""

    app: str
    deployment: str
    num_replicas: int


class Look(msgspec.Struct, frozen=True):
    """Answered with the details of everything."""


class Find(msgspec.Struct, frozen=True):
    """Answered with the name of the application's ingress deployment, or with the deployment's name if there is one of
    that name; None: there is none."""

    app: str
    deployment: str = ""


class ShutDown(msgspec.Struct, frozen=True):
    """Answered once nothing runs any more. The controller has nothing to do afterwards."""
