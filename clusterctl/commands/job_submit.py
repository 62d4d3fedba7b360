"""`clusterctl job submit`: any command as a job, with the options of Ray's command of this name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clusterctl import output

from .job_api import Address, Headers, job_api
from .options import Cluster


def submit_job(
    entrypoint: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="One string for a shell, or the command and its words."),
    ],
    cluster: Cluster = None,
    address: Address = None,
    headers: Headers = None,
    submission_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The job's id. Default: a random one.")
    ] = None,
    job_id: Annotated[str | None, typer.Option(hidden=True)] = None,
    runtime_env: Annotated[
        str | None, typer.Option(metavar="FILE", help="The job's runtime environment: a YAML file.")
    ] = None,
    runtime_env_json: Annotated[
        str | None, typer.Option(metavar="JSON", help="The job's runtime environment.")
    ] = None,
    working_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR|URI", help="Folder to upload, in which the command runs. Default: none."),
    ] = None,
    metadata_json: Annotated[
        str | None, typer.Option(metavar="JSON", help="Strings to store with the job, by name.")
    ] = None,
    entrypoint_num_cpus: Annotated[float | None, typer.Option(help="CPUs for the command itself.")] = None,
    entrypoint_num_gpus: Annotated[float | None, typer.Option(help="GPUs for the command itself.")] = None,
    entrypoint_memory: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Memory for the command itself.")
    ] = None,
    entrypoint_resources: Annotated[
        str | None, typer.Option(metavar="JSON", help="Other resources for the command itself, by name.")
    ] = None,
    entrypoint_label_selector: Annotated[
        str | None, typer.Option(metavar="JSON", help="Labels of the node on which the command runs.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Print the job's id instead of following its output.")
    ] = False,
    ray_compat: Annotated[
        bool,
        typer.Option("--ray-compat", help="Make `import ray` resolve to this engine."),
    ] = False,
) -> None:
    """Runs a command as a job, on the head or, with --entrypoint options, on a node with these resources.

    One string is run by a shell on the node. Several words reach the command as they are: no shell expands them. The
    output is followed until the job ends. The exit status is 0 if the job succeeded, else 1. Ctrl-C stops
    watching, not the job.

    A cluster's name or YAML may come first: clusterctl job submit training -- nvidia-smi

    RAY_JOB_SUBMIT_HOOK may name a function (`module.function`) that is called first, with these options.

    \b
      clusterctl job submit --working-dir . -- python job.py --rounds 3
      clusterctl job submit --working-dir . -- python -m package
      clusterctl job submit -- 'nvidia-smi | grep MiB'
    """
    import shlex

    from clusterctl.errors import CliError
    from clusterctl.jobs import client, environment
    from clusterctl.jobs.records import JobStatus
    from runtime.job_submission.client import new_submission_id

    name = submission_id or job_id
    fields: dict[str, Any] = {
        "metadata": _mapping("--metadata-json", metadata_json),
        "entrypoint_num_cpus": entrypoint_num_cpus,
        "entrypoint_num_gpus": entrypoint_num_gpus,
        "entrypoint_memory": entrypoint_memory,
        "entrypoint_resources": _mapping("--entrypoint-resources", entrypoint_resources),
        "entrypoint_label_selector": _mapping("--entrypoint-label-selector", entrypoint_label_selector),
    }
    _call_hook(
        {
            "address": address,
            "job_id": name,
            "submission_id": name,
            "runtime_env": runtime_env,
            "runtime_env_json": runtime_env_json,
            "metadata_json": fields["metadata"],
            "working_dir": working_dir,
            "entrypoint": tuple(entrypoint),
            "no_wait": no_wait,
            **{field: value for field, value in fields.items() if field != "metadata"},
        }
    )
    asked = environment.read(runtime_env, runtime_env_json, working_dir)
    package = client.local_folder(asked, output.progress)
    api = job_api(cluster, address, headers)
    ready = environment.upload_files(api, asked, package, {})
    given = {field: value for field, value in fields.items() if value}
    if ray_compat:
        given["ray_compat"] = True
    line = entrypoint[0] if len(entrypoint) == 1 else shlex.join(entrypoint)
    job = client.submit(api, line, ready, name or new_submission_id(), (), given)
    if no_wait:
        output.say(job)
        return
    output.progress(f"Job '{job}' submitted successfully")
    record = client.follow_to_end(api, job, output.raw)
    if record.status is not JobStatus.SUCCEEDED:
        words = record.message.partition(", last available logs")[0]
        raise CliError(f"Job '{job}' {record.status.value.lower()}: {words}")
    output.progress(f"Job '{job}' succeeded")


def _call_hook(arguments: dict[str, Any]) -> None:
    """Calls the function that RAY_JOB_SUBMIT_HOOK names, with the names that Ray gives the arguments."""
    import importlib

    from clusterctl import settings
    from clusterctl.errors import UsageProblem

    path = settings.JOB_SUBMIT_HOOK.get()
    if not path:
        return
    module, _, name = path.rpartition(".")
    try:
        hook = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageProblem(f"RAY_JOB_SUBMIT_HOOK={path} cannot be imported: {error}") from error
    hook(**arguments)


def _mapping(option: str, text: str | None) -> dict[str, Any] | None:
    import json

    from clusterctl.errors import UsageProblem

    if text is None:
        return None
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("no mapping")
    except ValueError as error:
        raise UsageProblem(f"{option} takes a JSON object, and {text!r} is none: {error}") from None
    return value
