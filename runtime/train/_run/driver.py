"""`fit` in the program that trains."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import runtime
from runtime import cloudpickle
from runtime._extension import lending
from runtime.exceptions import RayActorError, RayTaskError
from runtime.train._api.exceptions import ControllerError
from runtime.train._run.job import Job

if TYPE_CHECKING:
    from runtime.train._api.result import Result

ABORT_S = 5.0
"""How long a run that is given up may take to end its workers in order."""


def fit(job: Job) -> Result:
    """Runs a job; returns when it has ended. Ctrl-C gives it up.

    Raises:
        TrainingFailedError: it failed.
    """
    result = _in_this_process(job) if job.scaling.num_workers == 0 else _in_the_cluster(job)
    if result.error is not None:
        raise result.error
    return result


def _in_this_process(job: Job) -> Result:
    from runtime.train._run.local import fit_here

    return fit_here(job)


def _in_the_cluster(job: Job) -> Result:
    from runtime.train._run.controller_actor import ControllerActor
    from runtime.train._run.progress import wait_for

    if not runtime.is_initialized():
        runtime.init()
    assert job.run.failure_config is not None
    resources = dict(job.scaling.trainer_resources or {})
    controller = (
        runtime.remote(ControllerActor)
        .options(
            num_cpus=resources.pop("CPU", 0),
            num_gpus=resources.pop("GPU", 0),
            resources=resources,
            max_restarts=job.run.failure_config.controller_failure_limit,
            max_task_retries=-1,
            max_concurrency=4,
        )
        .remote(cloudpickle.dumps(job))
    )
    try:
        run = controller.run.remote()
        with lending.lent_cpus():  # a trial or another actor that only waits leaves its CPUs to the workers
            wait_for(run, controller, job.run.name or "", job.scaling)
        result: Result = runtime.get(run)
        return result
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):
            runtime.get(controller.abort.remote(), timeout=ABORT_S)
        raise
    except RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        raise ControllerError(cause) from error
    except RayActorError as error:
        raise ControllerError(error) from error
    finally:
        runtime.kill(controller)
