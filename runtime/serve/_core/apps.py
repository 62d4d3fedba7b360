"""An application as the controller has it, and as the control store keeps it."""

from __future__ import annotations

import pickle

import msgspec

from runtime.serve._core.application import ApplicationState
from runtime.serve._core.effects import Put
from runtime.serve._core.fleet import Fleet
from runtime.serve._core.specs import ApplicationSpec, DeploymentSpec
from runtime.serve._core.states import ApplicationStatus


class Kept(msgspec.Struct, frozen=True):
    """What the control store keeps of an application."""

    spec: ApplicationSpec
    deployed_s: float
    leaves: bool
    leaving: list[DeploymentSpec] = []


class App:
    """One application. `fleets` has its deployments; `leaving` those that its last version has not any more. While it
    `is_being_built`, the version before goes on."""

    def __init__(self, spec: ApplicationSpec, deployed_s: float) -> None:
        self.spec = spec
        self.deployed_s = deployed_s
        self.state = ApplicationState(spec.name)
        self.fleets: dict[str, Fleet] = {}
        self.leaving: dict[str, Fleet] = {}
        self.is_being_built = False

    @property
    def all_fleets(self) -> list[Fleet]:
        return [*self.fleets.values(), *self.leaving.values()]

    @property
    def key(self) -> bytes:
        return f"app\0{self.spec.name}".encode()

    @property
    def leaves(self) -> bool:
        return self.state.status is ApplicationStatus.DELETING

    def keep(self) -> Put:
        """For the control store."""
        leaving = [fleet.spec for fleet in self.leaving.values()]
        return Put(self.key, pickle.dumps(Kept(self.spec, self.deployed_s, self.leaves, leaving)))
