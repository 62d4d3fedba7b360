"""`clusterctl job list|stop|logs`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clusterctl import output

from .options import Cluster, Json

JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's id, as `clusterctl job list` shows it.")
]


def list_jobs(cluster: Cluster = None, json: Json = False) -> None:
    """Lists jobs, submitted ones and programs that connected by themselves.

    \b
      clusterctl job list --json
    """
    from .session import open_session

    jobs = open_session(cluster).api().get("/api/jobs/")
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


def stop_job(name: JobName, cluster: Cluster = None) -> None:
    """Stops a job and all its processes.

    \b
      clusterctl job stop job-1a2b3c4d
    """
    from .session import open_session

    api = open_session(cluster).api()
    answer = api.request("POST", f"/api/jobs/{name}/stop", body=b"", timeout_s=20.0).json()
    output.say(f"job {name} is stopped" if answer["stopped"] else f"job {name} had ended already")


def job_logs(
    name: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    cluster: Cluster = None,
) -> None:
    """Shows a job's output.

    \b
      clusterctl job logs -f job-1a2b3c4d
    """
    from clusterctl.errors import Interrupted
    from clusterctl.jobs import client

    from .session import open_session

    api = open_session(cluster).api()
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
