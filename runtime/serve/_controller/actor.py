"""The controller's process. It uses no CPU while nothing changes, and may be restarted at any time."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import string
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

import runtime
from runtime._controllers.loop import Loop
from runtime._private.state import available_resources_per_node
from runtime.serve._controller.configurations import Configurations, InStore
from runtime.serve._controller.engine import ServeEngine, forget_everything, recovered
from runtime.serve._core import requests
from runtime.serve._core.controller import ServeController
from runtime.serve._core.published import CONTROLLER, Demand, Load
from runtime.serve._core.specs import ApplicationSpec
from runtime.serve._core.world import World

log = logging.getLogger(__name__)
STALL_S = 60.0
"""After this long without an event the controller logs what it waits for."""


class Options(msgspec.Struct, frozen=True):
    """Of the controller: import paths of the classes of its actors, and the modules that workers import in advance."""

    replica_class: str = "runtime.serve._replica.actor:Replica"
    ingress_class: str = "runtime.serve._ingress.actor:Ingress"
    preload: tuple[str, ...] = ()


class ServeControllerActor:
    """See the module. Its methods answer on the actor's event loop; its decisions are made on a thread."""

    def __init__(self, options: Options) -> None:
        logging.getLogger("runtime").setLevel("INFO")
        world = World(
            unique=_unique,
            token=lambda: secrets.token_bytes(16),
            fits=fits_somewhere,
            wall_offset_s=time.time() - time.monotonic(),
            replica_class=options.replica_class,
            ingress_class=options.ingress_class,
        )
        engine = ServeEngine(options.preload)
        self._loop = Loop(ServeController(world, recovered()), engine, "serve controller", STALL_S)
        context = runtime.get_runtime_context()
        self._facts = {
            "node_id": context.get_node_id(),
            "node_ip": runtime.util.get_node_ip_address(),
            "actor_id": context.get_actor_id(),
            "actor_name": CONTROLLER,
            "worker_id": context.get_worker_id(),
            "pid": os.getpid(),
        }
        self._kept = InStore()
        self._configurations = Configurations(self._loop.request, self._kept)
        threading.Thread(target=self._run, name="serve controller", daemon=True).start()
        if self._kept.config() is not None:
            me = runtime.get_runtime_context().current_actor
            me.resume.remote()  # the event loop does not run yet

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException:
            # A controller without its loop answers nobody. A new process recovers from the control store.
            log.exception("The serve controller failed, and is started again.")
            logging.shutdown()
            os._exit(1)

    async def _ask(self, what: Any) -> Any:
        return await asyncio.wrap_future(self._loop.request(what))

    async def deploy(
        self, specs: Sequence[ApplicationSpec], start: requests.Configure | None = None, waits: bool = True
    ) -> None:
        """See `requests.Deploy`; `start`: what to begin with where serving was not started.

        Raises:
            DeployFailed, Refused: see there.
        """
        if start is not None:
            self._loop.request(start)
        await self._ask(requests.Deploy(list(specs), waits))

    async def deploy_config(self, config: dict[str, Any]) -> None:
        """Deploys what a configuration says, with the names of Ray's YAML files: its applications are built in tasks.
        Returns once it is accepted; declared applications that it does not name are deleted.

        Raises:
            ValueError: it is invalid.
            Refused: it contradicts what is deployed.
        """
        await self._configurations.deploy(config)

    async def resume(self) -> None:
        """Continues with a configuration that was being built when the controller was restarted."""
        await self._configurations.resume()

    async def delete(self, names: Sequence[str], waits: bool = True) -> None:
        """See `requests.Delete`."""
        await self._ask(requests.Delete(list(names), waits))

    async def start(self, options: requests.Configure) -> None:
        """See `requests.Configure`."""
        await self._ask(options)

    async def details(self) -> dict[str, Any]:
        """See `view.details`."""
        return {**(await self._ask(requests.Look())), "controller_info": self._facts}

    async def find(self, app: str, deployment: str = "") -> str | None:
        """See `requests.Find`."""
        found: str | None = await self._ask(requests.Find(app, deployment))
        return found

    async def wait_for(
        self, names: Sequence[str], states: Sequence[str], timeout_s: float | None = None
    ) -> None:
        """See `requests.WaitFor`."""
        await self._ask(requests.WaitFor(list(names), list(states), timeout_s))

    async def set_replicas(self, app: str, deployment: str, num_replicas: int) -> None:
        """See `requests.SetReplicas`."""
        await self._ask(requests.SetReplicas(app, deployment, num_replicas))

    async def record_demand(self, demand: Demand) -> None:
        """A caller tells how many requests wait there."""
        self._loop.request(demand)

    async def record_load(self, load: Load) -> None:
        """A replica tells how many requests run there."""
        self._loop.request(load)

    async def shutdown(self) -> None:
        """Ends and forgets everything that is served. Kill the controller afterwards."""
        await self._configurations.stop()
        await self._ask(requests.ShutDown())
        await asyncio.to_thread(forget_everything)
        await asyncio.to_thread(self._kept.hold, set())


def fits_somewhere(demand: Mapping[str, float]) -> bool:
    """Whether one node has these resources free."""
    return any(
        all(free.get(name, 0.0) + 1e-9 >= amount for name, amount in demand.items())
        for free in available_resources_per_node().values()
    )


def _unique() -> str:
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=8))
