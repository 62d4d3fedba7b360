"""`clusterctl submit`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from . import afterwards
from .options import Cluster, Json, NoConfigCache, Start


def submit(
    script: Annotated[str, typer.Argument(help="A Python program on this machine.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments.")] = None,
    cluster: Cluster = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show the output and wait for the end.")
    ] = True,
    working_dir: Annotated[str | None, typer.Option(help="Folder to upload. Default: the script's.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Environment variable of the job. May be repeated."),
    ] = None,
    runtime_env: Annotated[
        str | None, typer.Option(metavar="FILE", help="The job's runtime environment: a YAML file.")
    ] = None,
    runtime_env_json: Annotated[
        str | None, typer.Option(metavar="JSON", help="The job's runtime environment.")
    ] = None,
    submission_id: Annotated[str | None, typer.Option(help="The job's id. Default: a random one.")] = None,
    ray_compat: Annotated[
        bool, typer.Option("--ray-compat", help="Make `import ray` resolve to this engine.")
    ] = False,
    start: Start = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the cluster after the program.")] = False,
    down: Annotated[bool, typer.Option("--down", help="Take the cluster down after the program.")] = False,
    num_cpus: Annotated[
        float | None, typer.Option("--entrypoint-num-cpus", help="CPUs for the program itself.")
    ] = None,
    num_gpus: Annotated[
        float | None, typer.Option("--entrypoint-num-gpus", help="GPUs for the program itself.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option("--entrypoint-memory", help="Bytes of memory for the program itself.")
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(
            "--entrypoint-resources", metavar="JSON", help="Other resources for the program itself."
        ),
    ] = None,
    json: Json = False,
    no_config_cache: NoConfigCache = False,
) -> None:
    """Runs a Python program as a job on the cluster.

    Uploads the program's folder, runs the program on the head, and prints its output. With --entrypoint options the
    program waits for a node with these resources, and runs there. The exit status is the program's (128 + n if signal
    n ended it).

    The head owns the job: it continues when this terminal closes. Ctrl-C stops watching, not the job. With --stop or
    --down the head then ends the cluster, once it has been idle for 5 minutes.

    Files ignored by .gitignore are not uploaded, nor are well-known secrets (.ssh, .aws, .env, ...). The command prints
    what it uploads, and refuses the home folder.

    A cluster's name or YAML may come first: clusterctl submit training job.py

    \b
      clusterctl submit examples/index_stdlib.py --limit 100
    """
    from clusterctl.errors import CliError, UsageProblem
    from clusterctl.jobs import client, environment

    from .opened_cluster import open_cluster
    from .starting import started

    if script.startswith("-"):
        raise UsageProblem(
            f"no such option: {script}",
            "A job outlives the terminal without tmux or screen: --no-wait returns at once. A module: clusterctl job "
            "submit --working-dir . -- python -m MODULE",
        )
    if stop and down:
        raise UsageProblem("--stop and --down exclude each other")
    if (stop or down) and not wait:
        raise UsageProblem(
            "--stop and --down wait for the program's end, and --no-wait does not",
            "Let the cluster stop by itself when it is idle: see `clusterctl autostop --help`.",
        )
    if start:
        started(cluster)
    opened = open_cluster(cluster)
    afterwards.check(opened, stop, down)
    variables = dict(item.partition("=")[::2] for item in env or [])
    if any("=" not in item for item in env or []):
        raise UsageProblem("--env takes NAME=VALUE")
    asked = environment.read(runtime_env, runtime_env_json)
    folder, excludes = working_dir or asked.get("working_dir"), asked.get("excludes") or ()
    overridable = () if folder or not opened.has_our_head else ("working_dir",)
    compat = ray_compat and opened.has_our_head
    package, entrypoint = client.prepare(script, arguments or [], folder, compat, excludes, output.progress)
    api = opened.api()
    ready = environment.upload_files(api, asked, package, variables)
    wants = {
        "entrypoint_num_cpus": num_cpus,
        "entrypoint_num_gpus": num_gpus,
        "entrypoint_memory": memory,
        "entrypoint_resources": _amounts(resources),
    }
    given = {field: value for field, value in wants.items() if value}
    if not wait:
        name = client.submit(api, entrypoint, ready, submission_id, overridable, given)
        if json:
            output.as_json({"submission_id": name, "cluster": opened.record.name})
        else:
            output.say(name)
        return
    with afterwards.of_job(opened, api, stop, down):
        name = client.submit(api, entrypoint, ready, submission_id, overridable, given)
        output.progress(f"job {name} runs on cluster '{opened.record.name}'")
        record = client.follow_to_end(api, name, output.raw)
    if record.driver_exit_code is None:
        raise CliError(f"job {name}: {record.message}")
    if record.driver_exit_code:
        words = record.message.partition(", last available logs")[0]  # of Ray, which ends with the output
        output.progress(f"job {name} {record.status.value.lower()}: {words}")
    raise typer.Exit(record.driver_exit_code)


def _amounts(text: str | None) -> dict[str, float]:
    import msgspec

    from clusterctl.errors import UsageProblem

    try:
        return msgspec.json.decode(text or "{}", type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise UsageProblem(
            f"--entrypoint-resources: {error}", "Give amounts by name: '{\"disk\": 1}'"
        ) from None
