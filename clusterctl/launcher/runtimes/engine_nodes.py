"""How machines become nodes of our engine: the facts of their setup, and what tells whether they run. Pure.

The same code serves `up` for the head and the head for its workers.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from autoscaler.provider import SPOT, Machine, NodeType, machine_labels
from clusterctl.artefacts.target import Target
from clusterctl.providers import registry
from clusterctl.spec import ray_start
from clusterctl.spec.definition import ClusterSpec
from clusterctl.startup.order import JoinOrder

from .. import setup
from ..setup import NODE_FOLDER, PYTHON, NodeFacts
from ..shipping import Shipment

START = f"{PYTHON} -m clusterctl start"
STOP = f"{START} --stop"
_CONFIG = "head.json"

READ_RECORD = """\
daemon=$(tr -d '\\n' 2>/dev/null < "$s/daemon.json"); echo daemon $daemon
pid=$(echo "$daemon" | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p')
[ -z "$pid" ] || echo stat $(cat /proc/$pid/stat 2>/dev/null)
echo boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
"""
"""Script: prints the record in session folder $s, and what the kernel says of its process. See `life.is_recorded`."""

LIFE_QUESTION = f"""\
s=${{CLUSTERCTL_SESSION_DIR:-}}
[ -n "$s" ] && [ -r /proc/self/stat ] || {{ echo "its /proc or its session folder cannot be read"; exit 1; }}
[ ! -e "$s/daemon.json" ] || [ -r "$s/daemon.json" ] || {{ echo "$s/daemon.json cannot be read"; exit 1; }}
{READ_RECORD}
for file in $(grep -lF -e "$s" /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null); do
  p=${{file%/*}}
  case "$(tr '\\0' ' ' 2>/dev/null < "$p/cmdline")" in
    *" clusterctl"".head "*|*" clusterctl"".head.keeper "*|*" clusterctl"".head.join "*|*" runtime"."_node "*)
      echo "process ${{p#/proc/}}" ;;
  esac
done
echo looked
"""
"""A daemon whose record was removed, e.g. by a program that tidies /tmp, is found in the process list.
The quotes keep the shell that has this script among its arguments from finding itself."""


def head_facts(
    spec: ClusterSpec,
    secret_file: str,
    config_file: str,
    host: str,
    files: Sequence[tuple[str, str]] = (),
    runtime: Callable[[Target], Shipment] | None = None,
) -> NodeFacts:
    """Facts of the head, seen from the operator's machine.

    Args:
        host: the head's address, as the cluster's other machines reach it.
        files: further private ones, (there, here).
        runtime: makes what is shipped; None: the machine has it, with this very Python.
    """
    return replace(
        setup.head_facts(spec, host),
        start=f"{START} --head --config {NODE_FOLDER}/{_CONFIG} --secret-file {NODE_FOLDER}/secret --json",
        secret_file=secret_file,
        files=((_CONFIG, config_file), *files),
        python=sys.version_info[:2] if runtime is None else None,
        runtime=runtime,
        start_commands=tuple(ray_start.parse_start(spec.head_start_ray_commands).commands),
    )


def worker_facts(
    spec: ClusterSpec,
    machine: Machine,
    node_type: NodeType,
    instance_id: str,
    control_address: str,
    secret_file: str,
    runtime: Callable[[Target], Shipment] | None = None,
) -> NodeFacts:
    """Facts of a worker, seen from the head: file mounts come from where the head has them."""
    order = JoinOrder(
        address=control_address,
        host=machine.address,
        secret_file=f"{NODE_FOLDER}/secret",
        node_type=node_type.name,
        instance_id=instance_id,
        resources=dict(node_type.resources),
        labels=machine_labels(node_type, machine.zone, machine.market),
        notices=registry.entry(spec.provider.type_name).notices if machine.market == SPOT else None,
    )
    return replace(
        setup.worker_facts(spec, node_type, control_address, setup.heads_mounts(spec)),
        start=join_command(order),
        secret_file=secret_file,
        runtime=runtime,
        start_commands=tuple(ray_start.parse_start(spec.worker_start_ray_commands).commands),
    )


def join_command(order: JoinOrder) -> str:
    """Starts the node agent in the background, and waits until it says that it is up, or is gone. Why, it says
    itself, if nobody killed it."""
    words = shlex.quote(msgspec.json.encode(order).decode())
    return (
        f"record=$({PYTHON} -P -m clusterctl.head.join {words} &)\n"
        'echo "${record:?the node agent did not come up; its log is in the folder of its session}"'
    )
