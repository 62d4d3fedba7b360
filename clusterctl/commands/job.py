"""`clusterctl job list|status|logs|stop|delete`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clusterctl import output

from .job_api import Address, Headers, job_api
from .options import Cluster, Json

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, from `clusterctl job list`.")]


def list_jobs(
    cluster: Cluster = None, address: Address = None, headers: Headers = None, json: Json = False
) -> None:
    """Lists jobs, submitted ones and programs that connected by themselves.

    \b
      clusterctl job list --json
    """
    jobs = job_api(cluster, address, headers).get("/api/jobs/")
    if json:
        output.as_json(jobs)
        return
    for line in output.table(("job", "status", "exit", "started", "took", "entrypoint"), map(_row, jobs)):
        output.say(line)


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    import time

    start, end = job.get("start_time"), job.get("end_time")
    code = job.get("driver_exit_code")
    return (
        job["submission_id"] or f"(driver {job['job_id']})",
        job["status"],
        "" if code is None else str(code),
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(start / 1000)) if start else "",
        output.duration((end - start) / 1000) if start and end else "",
        job["entrypoint"],
    )


def job_status(
    name: JobName,
    cluster: Cluster = None,
    address: Address = None,
    headers: Headers = None,
    json: Json = False,
) -> None:
    """Shows a job's status. Exits with 0 whatever the status is, and with 3 if there is no such job.

    \b
      clusterctl job status job-1a2b3c4d
    """
    job = job_api(cluster, address, headers).get(f"/api/jobs/{name}")
    if json:
        output.as_json(job)
        return
    output.say(f"Status for job '{name}': {job['status']}")
    if job.get("message"):
        output.say(f"Status message: {job['message']}")


def stop_job(
    name: JobName,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", hidden=True, help="Accepted for Ray's scripts: stopping takes a moment."),
    ] = False,
    cluster: Cluster = None,
    address: Address = None,
    headers: Headers = None,
) -> None:
    """Stops a job and all its processes.

    \b
      clusterctl job stop job-1a2b3c4d
    """
    api = job_api(cluster, address, headers)
    answer = api.request("POST", f"/api/jobs/{name}/stop", body=b"", timeout_s=20.0).json()
    output.say(f"job {name} is stopped" if answer["stopped"] else f"job {name} had ended already")


def delete_job(
    name: JobName, cluster: Cluster = None, address: Address = None, headers: Headers = None
) -> None:
    """Deletes the record and the output of a job that has ended.

    \b
      clusterctl job delete job-1a2b3c4d
    """
    from clusterctl.errors import CliError, UsageProblem

    try:
        job_api(cluster, address, headers).delete(f"/api/jobs/{name}")
    except UsageProblem as error:  # the arguments are right: the job runs
        raise CliError(error.message, f"End it with: clusterctl job stop {name}") from error
    output.say(f"Job '{name}' deleted successfully")


def job_logs(
    name: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job has ended.")] = False,
    cluster: Cluster = None,
    address: Address = None,
    headers: Headers = None,
) -> None:
    """Shows a job's output.

    \b
      clusterctl job logs -f job-1a2b3c4d
    """
    from clusterctl.errors import Interrupted
    from clusterctl.jobs import client

    api = job_api(cluster, address, headers)
    if not follow:
        offset = 0
        while True:
            answer = api.request("GET", f"/api/jobs/{name}/logs", query={"offset": offset})
            if not answer.body:
                return
            output.raw(answer.body)
            offset = int(answer.headers["x-next-offset"])
    try:
        client.follow(api, name, output.raw)
    except KeyboardInterrupt:
        raise Interrupted(f"\nstopped watching; job {name} runs on") from None
