"""Assembles the command line. Command modules import what they need when they run, so that `--help` is
quick."""

from __future__ import annotations

import typer

import clusterctl
from clusterctl.commands import (
    addresses,
    attach,
    autostop,
    check,
    cluster,
    dashboard,
    doctor,
    down,
    execute,
    job,
    logs,
    monitor,
    rsync,
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
        "  clusterctl status                          nodes, demand, the autoscaler's doings\n"
        "  clusterctl down                            everything ends\n\n"
        "The cluster brought up last is the current one; --cluster NAME|FILE chooses another."
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

app.command("up")(guarded(up.up))
app.command("down")(guarded(down.down))
app.command("stop")(guarded(stop.stop))
app.command("status")(guarded(status.status))
app.command("autostop")(guarded(autostop.autostop))
app.command("check")(guarded(check.check))
app.command("doctor")(guarded(doctor.doctor))
app.command("simulate")(guarded(simulate.simulate))
app.command("submit", cls=ClusterFirst, context_settings=_PASS_ON)(guarded(submit.submit))
app.command("attach")(guarded(attach.attach))
app.command("exec", cls=ClusterFirst, context_settings=_PASS_ON)(guarded(execute.execute))
app.command("logs", cls=ClusterFirst)(guarded(logs.logs))
app.command("monitor")(guarded(monitor.monitor))
app.command("dashboard")(guarded(dashboard.dashboard))
for _name, _command in (("head-ip", addresses.get_head_ip), ("worker-ips", addresses.get_worker_ips)):
    app.command(f"get-{_name}")(guarded(_command))
    app.command(f"get-{_name}".replace("-", "_"), hidden=True)(guarded(_command))  # as Ray spells it, too
for _word in ("rsync-{}", "rsync_{}"):  # as Ray spells it
    app.command(_word.format("up"), cls=ClusterFirst, hidden=True)(guarded(rsync.up))
    app.command(_word.format("down"), cls=ClusterFirst, hidden=True)(guarded(rsync.down))
app.command("stack")(guarded(stack.stack))
app.command("start")(guarded(start.start))

jobs = typer.Typer(
    help="Lists, follows and stops jobs.\n\n\b\n  clusterctl job list\n  clusterctl job logs -f job-1a2b3c4d",
    no_args_is_help=True,
    rich_markup_mode=None,
)
jobs.command("list")(guarded(job.list_jobs))
jobs.command("stop")(guarded(job.stop_job))
jobs.command("logs")(guarded(job.job_logs))
app.add_typer(jobs, name="job")

copies = typer.Typer(
    help="Brings files to the cluster's nodes, or from them.\n\n\b\n  clusterctl rsync up ./data '~/data'",
    no_args_is_help=True,
    rich_markup_mode=None,
)
copies.command("up", cls=ClusterFirst)(guarded(rsync.up))
copies.command("down", cls=ClusterFirst)(guarded(rsync.down))
app.add_typer(copies, name="rsync")

clusters = typer.Typer(
    help="Lists the clusters that this machine knows.\n\n\b\n  clusterctl cluster list",
    no_args_is_help=True,
    rich_markup_mode=None,
)
clusters.command("list")(guarded(cluster.list_clusters))
app.add_typer(clusters, name="cluster")
