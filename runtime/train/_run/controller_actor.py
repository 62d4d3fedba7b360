"""The process of a run's controller. It has no resources of its own by default, and may be restarted: what it needs
then is in the run's folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

import runtime
from runtime import cloudpickle
from runtime._controllers.cluster import ClusterEngine
from runtime._controllers.loop import Ended, Loop
from runtime._controllers.members import GangSpec, GroupSpec
from runtime._extension import workers
from runtime.train._core.controller import TrainController
from runtime.train._core.plan import ABORT, Aborted, Plan
from runtime.train._core.table import RunView
from runtime.train._run import validation
from runtime.train._run.keeper import RunKeeper
from runtime.train._run.metrics import RunMetrics
from runtime.train._run.records import config_of
from runtime.train._run.room import room_of
from runtime.train._run.worker import Setup, Worker

if TYPE_CHECKING:
    from runtime.train._api.result import Result
    from runtime.train._run.job import Job

CALLS = 16
"""Threads of a worker: one trains, one carries its records, and the others answer the controller."""
LOOK = "look"
"""The request for a view of the run."""
LOOK_S = 5.0
"""How long its answer is waited for."""
STALL_S = 60.0
"""After so long without news the controller says what it waits for."""


class ControllerActor:
    """Runs one job. `run` holds a thread of it."""

    def __init__(self, job: bytes) -> None:
        logging.getLogger("runtime").setLevel("INFO")
        self._job: Job = cloudpickle.loads(job)
        self._loop: Loop | None = None
        self._keeper: RunKeeper | None = None

    def run(self) -> Result | None:
        """Runs it to its end. None: it was given up, and nobody waits for a result."""
        job = self._job
        keeper = RunKeeper(job.run, job.resume_from, config_of(job), job.validation)
        controller = TrainController(_plan(job, keeper), keeper)
        self._keeper = keeper
        self._loop = Loop(controller, ClusterEngine(), f"train run {job.run.name}", STALL_S)
        metrics = RunMetrics(job.run.name or "", self.look)
        metrics.start()
        try:
            result: Result = self._loop.run()
        except Aborted:
            return None
        finally:
            metrics.stop()
        return result

    def look(self) -> RunView | None:
        """What the run does now; None: nothing yet, or it has ended."""
        loop, keeper = self._loop, self._keeper
        if loop is None or keeper is None:
            return None
        try:
            view: RunView = loop.request(LOOK).result(LOOK_S)
        except (Ended, TimeoutError):
            return None
        return msgspec.structs.replace(view, metrics=[_numbers(each) for each in keeper.last_metrics])

    def abort(self) -> None:
        """Gives the run up."""
        if self._loop is not None:
            try:
                self._loop.request(ABORT).result()
            except Ended:
                pass


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics that can be shown."""
    return {name: value for name, value in metrics.items() if type(value) in (int, float)}


def _plan(job: Job, keeper: RunKeeper) -> Plan:
    scaling = job.scaling
    assert job.run.failure_config is not None
    bundle = scaling.bundle
    setup = Setup(
        name=job.run.name or "",
        function=cloudpickle.dumps(job.function),
        backend=cloudpickle.dumps(job.backend),
        storage=keeper.storage,
        metadata=job.metadata,
        resources=bundle,
        stamp=datetime.now().strftime("%Y-%m-%d_%H-%M-%S.%f"),
        validates=job.validation is not None,
        copy_bytes=job.copy_bytes,
    )
    options = _options(job, bundle)
    group = GroupSpec(
        name="workers",
        cls=runtime.remote(Worker),
        args=(setup,),
        options_of=lambda _number: options,
        most_calls=CALLS,
        failed_starts=3,
        gang=GangSpec(bundle, scaling.placement_strategy, scaling.label_selector or ()),
    )
    shards_of = None
    if job.datasets:
        from runtime.train._run.shards import Shards

        shards_of = Shards(job.datasets, job.data_config).of
    return Plan(
        workers=group,
        size=scaling.most_workers,
        least=scaling.num_workers[0] if isinstance(scaling.num_workers, tuple) else 0,
        room_for=room_of(scaling).now,
        resize_s=scaling.elastic_resize_monitor_interval_s,
        max_failures=job.run.failure_config.max_failures,
        max_preemptions=job.run.failure_config.max_preemption_failures,
        has_rendezvous=job.backend.has_rendezvous,
        new_processes=job.backend.needs_new_process,
        shards_of=shards_of,
        stall_s=job.report_timeout_s,
        validation=validation.task() if job.validation is not None else None,
        validation_options=job.validation.ray_remote_kwargs if job.validation is not None else {},
    )


def _options(job: Job, bundle: Mapping[str, float]) -> dict[str, Any]:
    resources = dict(bundle)
    options: dict[str, Any] = {
        "num_cpus": resources.pop("CPU", 0),
        "num_gpus": resources.pop("GPU", 0),
        "max_restarts": -1,
        "max_concurrency": CALLS,
    }
    if "memory" in resources:
        options["memory"] = resources.pop("memory")
    if resources:
        options["resources"] = resources
    environment = dict(job.run.worker_runtime_env or {})
    if job.backend.modules:
        environment = workers.preloaded(*job.backend.modules, runtime_env=environment)
    if environment:
        options["runtime_env"] = environment
    return options
