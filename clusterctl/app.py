"""Assembles the command line. Command modules import what they need when they run, so that `--help` is
quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

import clusterctl
from clusterctl.commands import (
    addresses,
    attach,
    autostop,
    check,
    cluster,
    connect,
    dashboard,
    doctor,
    down,
    execute,
    job,
    job_submit,
    logs,
    monitor,
    node,
    rsync,
    serve,
    simulate,
    stack,
    start,
    status,
    stop,
    submit,
    up,
)
from clusterctl.commands.cluster_first import ClusterFirst
from clusterctl.commands.guard import guarded
from clusterctl.commands.ray_options import RayOptions
from clusterctl.errors import ExitCode

_EPILOG = "Exit status: " + ", ".join(
    f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode
)

app = typer.Typer(
    name="clusterctl",
    help=(
        "Brings clusters up from a YAML file, runs programs on them, and takes them down again.\n\n"
        "\b\n"
        "  clusterctl up cluster-configs/local.yaml   a head and two workers on this machine\n"
        "  clusterctl submit job.py --rounds 3        runs job.py there, shows its output\n"
        "  clusterctl status                          nodes, demand, autoscaler actions\n"
        "  clusterctl down                            terminates everything\n\n"
        "Commands use this terminal's current cluster: the last one brought up in it, unless they name another."
    ),
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        typer.echo(f"clusterctl {clusterctl.__version__}")
        raise typer.Exit(ExitCode.OK)


_PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def _add(
    group: typer.Typer, name: str, command: Callable[..., None], prefix: str = "", **options: Any
) -> None:
    group.command(name, **options)(guarded(command, f"{prefix}{name}"))


_add(app, "up", up.up, cls=RayOptions)
_add(app, "down", down.down, cls=RayOptions)
_add(app, "stop", stop.stop)
_add(app, "status", status.status)
_add(app, "autostop", autostop.autostop)
_add(app, "check", check.check)
_add(app, "doctor", doctor.doctor)
_add(app, "simulate", simulate.simulate)
_add(app, "submit", submit.submit, cls=ClusterFirst, context_settings=_PASS_ON)
_add(app, "attach", attach.attach, cls=RayOptions)
_add(app, "exec", execute.execute, cls=ClusterFirst, context_settings=_PASS_ON)
_add(app, "logs", logs.logs, cls=ClusterFirst)
_add(app, "monitor", monitor.monitor, cls=RayOptions)
_add(app, "dashboard", dashboard.dashboard, cls=RayOptions)
_add(app, "connect", connect.connect, cls=ClusterFirst, context_settings=_PASS_ON)
for _name, _command in (("head-ip", addresses.get_head_ip), ("worker-ips", addresses.get_worker_ips)):
    _add(app, f"get-{_name}", _command, cls=RayOptions)
    _add(
        app, f"get-{_name}".replace("-", "_"), _command, cls=RayOptions, hidden=True
    )  # as Ray spells it, too
for _word in ("rsync-{}", "rsync_{}"):  # as Ray spells it
    _add(app, _word.format("up"), rsync.up, cls=ClusterFirst, hidden=True)
    _add(app, _word.format("down"), rsync.down, cls=ClusterFirst, hidden=True)
_add(app, "stack", stack.stack)
_add(
    app,
    "serve",
    serve.serve,
    context_settings={**_PASS_ON, "help_option_names": []},
)
_add(app, "start", start.start)

jobs = typer.Typer(
    help=(
        "Submits commands as jobs; lists, follows, stops and deletes jobs.\n\n"
        "\b\n"
        "  clusterctl job submit --working-dir . -- python job.py\n"
        "  clusterctl job list\n"
        "  clusterctl job logs -f job-1a2b3c4d"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)
_add(
    jobs,
    "submit",
    job_submit.submit_job,
    "job ",
    cls=ClusterFirst,
    context_settings={"allow_interspersed_args": False},
)
_add(jobs, "list", job.list_jobs, "job ", cls=ClusterFirst)
_add(jobs, "status", job.job_status, "job ", cls=ClusterFirst)
_add(jobs, "logs", job.job_logs, "job ", cls=ClusterFirst)
_add(jobs, "stop", job.stop_job, "job ", cls=ClusterFirst)
_add(jobs, "delete", job.delete_job, "job ", cls=ClusterFirst)
app.add_typer(jobs, name="job")

copies = typer.Typer(
    help="Copies files to the cluster's nodes, or from them.\n\n\b\n  clusterctl rsync up ./data '~/data'",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_add(copies, "up", rsync.up, "rsync ", cls=ClusterFirst)
_add(copies, "down", rsync.down, "rsync ", cls=ClusterFirst)
app.add_typer(copies, name="rsync")

nodes = typer.Typer(
    help=(
        "Lists a cluster's nodes, runs commands on one, and shows its logs.\n\n"
        "\b\n"
        "  clusterctl node list\n"
        "  clusterctl node exec 3a56d39878 nvidia-smi\n"
        "  clusterctl node logs 3a56d39878\n"
        "  clusterctl node token"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)
_add(nodes, "list", node.list_nodes, "node ")
_add(nodes, "exec", node.exec_node, "node ", cls=ClusterFirst, context_settings=_PASS_ON)
_add(nodes, "logs", logs.logs, "node ", cls=ClusterFirst)
_add(nodes, "token", node.print_token, "node ")
app.add_typer(nodes, name="node")

clusters = typer.Typer(
    help=(
        "Lists the clusters that this machine knows, chooses this terminal's, and hands clusters over.\n\n"
        "\b\n"
        "  clusterctl cluster list\n"
        "  clusterctl cluster use training\n"
        "  clusterctl cluster export training training.cluster\n"
        "  clusterctl cluster ssh-config training"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)
_add(clusters, "list", cluster.list_clusters, "cluster ")
_add(clusters, "use", cluster.use_cluster, "cluster ")
_add(clusters, "export", cluster.export_cluster, "cluster ")
_add(clusters, "import", cluster.import_cluster, "cluster ")
_add(clusters, "ssh-config", cluster.ssh_config, "cluster ")
app.add_typer(clusters, name="cluster")
