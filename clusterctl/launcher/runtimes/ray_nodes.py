"""How machines become nodes of Ray itself (`runtime: {kind: ray}`): the facts of their setup, and which workers there
have to be. Pure.

Ray comes into the folder where the engine would be, so that its `bin` is first in the PATH of all that runs there.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from autoscaler.provider import Machine, MachineTags, NodeType, machine_labels
from clusterctl.spec import ray_start
from clusterctl.spec.definition import ClusterSpec, RayRuntime
from clusterctl.sync.transfer import Mount

from .. import node_types, setup
from ..setup import BASE_PYTHON, NODE_FOLDER, NodeFacts
from ..steps import Step

PORT = 6379
DASHBOARD_PORT = 8265
_PLACE = (
    'cd; mkdir -p "$CLUSTERCTL_SESSION_DIR/ray" && chmod 700 "$CLUSTERCTL_SESSION_DIR" && '
    'ln -sfn ray/session_latest/logs "$CLUSTERCTL_SESSION_DIR/logs" && export TMPDIR="$CLUSTERCTL_SESSION_DIR/ray"\n'
)
_START = 'ray start --temp-dir="$CLUSTERCTL_SESSION_DIR/ray"'
"""What Ray leaves behind is in the machine's session, which goes with the machine; its logs are where ours would be."""
_NONE_RUNS = "pgrep -f '[r]aylet|[g]cs_server|/[r]ay/' > /dev/null 2>&1; [ $? = 1 ]"
"""Succeeds where nothing of Ray runs. Asking Ray itself takes a second or two; where there is no pgrep, it is asked."""
_RAY_START = re.compile(r"\bray\s+start\b(?!.*--temp-dir)", re.DOTALL)
_AUTOSCALING = re.compile(r"\s--autoscaling-config(=|\s+)\S+")
_INSTALL_S = 1800.0

LIFE_QUESTION = """\
[ -r /proc/self/stat ] || { echo "its /proc cannot be read"; exit 1; }
for file in $(grep -lxE -e 'gcs_server|raylet' /proc/[0-9]*/comm 2>/dev/null); do
  p=${file%/*}
  [ ! -O "$p" ] || echo "process ${p#/proc/}"
done
echo looked
"""
"""Script: prints the processes of Ray that are the user's. See `life.read`."""


def port(spec: ClusterSpec) -> int:
    """Where Ray's head listens."""
    return spec.ports.control or ray_start.parse_start(spec.head_start_ray_commands).control_port or PORT


def dashboard_port(spec: ClusterSpec) -> int:
    """Where Ray's dashboard and its job API listen, on the head's loopback."""
    return spec.ports.api or ray_start.parse_start(spec.head_start_ray_commands).api_port or DASHBOARD_PORT


def environment(spec: ClusterSpec, head_host: str, secret: str) -> dict[str, str]:
    """What programs need to use the cluster. The cluster's secret is Ray's token."""
    return {
        "RAY_ADDRESS": f"{head_host}:{port(spec)}",
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard_port(spec)}",
        **_token(secret),
    }


def head_facts(spec: ClusterSpec, machine: Machine, kind: NodeType, secret: str) -> NodeFacts:
    """Facts of the head."""
    command = (
        f"--head --port={port(spec)} --dashboard-port={dashboard_port(spec)} "
        f"--node-ip-address={machine.address} --disable-usage-stats"
    )
    start = (
        *(_given(spec.head_start_ray_commands) or _default(command)),
        f"ray health-check --address {machine.address}:{port(spec)}",
    )
    return _with_ray(setup.head_facts(spec, machine.address), start, spec, machine, kind, secret)


def worker_facts(
    spec: ClusterSpec, machine: Machine, head_host: str, kind: NodeType, secret: str
) -> NodeFacts:
    """Facts of a worker."""
    command = (
        f'--address="$RAY_HEAD_IP:{port(spec)}" --node-ip-address={machine.address} --disable-usage-stats'
    )
    start = _given(spec.worker_start_ray_commands) or _default(command)
    common = setup.worker_facts(spec, kind, f"{head_host}:{port(spec)}", setup.operators_mounts(spec))
    return _with_ray(common, start, spec, machine, kind, secret)


def _with_ray(
    facts: NodeFacts, start: tuple[str, ...], spec: ClusterSpec, machine: Machine, kind: NodeType, secret: str
) -> NodeFacts:
    assert isinstance(spec.runtime, RayRuntime)
    named = spec.available_node_types[kind.name].resources
    overridden = {"RAY_OVERRIDE_RESOURCES": msgspec.json.encode(named).decode()} if named else {}
    labels = machine_labels(kind, machine.zone, machine.market)
    return replace(
        facts,
        start="true",  # the start commands do it
        start_commands=start,
        looks=False,
        install=tuple(_install(spec.runtime, facts.container is not None)),
        env={
            **facts.env,
            **_token(secret),
            **overridden,
            "RAY_OVERRIDE_LABELS": msgspec.json.encode(labels).decode(),
        },
    )


def _token(secret: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secret}


def _given(commands: Sequence[str]) -> tuple[str, ...]:
    """The spec's own start commands, but for Ray's own autoscaler, whose configuration nobody has written, and with
    Ray's files where the machine's are."""
    return tuple(_PLACE + _RAY_START.sub(_START, _AUTOSCALING.sub("", command)) for command in commands)


def _default(command: str) -> tuple[str, ...]:
    return (
        f"{_NONE_RUNS} || ray stop --force > /dev/null 2>&1 || true",
        f"{_PLACE}ulimit -n 65536 2> /dev/null; {_START} {command}",
    )


def _install(runtime: RayRuntime, in_container: bool) -> list[Step]:
    folder = f"{NODE_FOLDER}/runtime"
    # An image that is named is taken for one with Ray, unless the spec says which to install.
    there = runtime.python or (
        "python" if in_container and not (runtime.version or runtime.wheelhouse) else ""
    )
    if there:
        python = shlex.quote(there)
        words = shlex.quote(f"there is no Ray in {there}: name another runtime.python, or a version")
        command = (
            f"found=$(command -v {python}) || {{ echo there is no {python}; exit 1; }}\n"
            f'bin=$(dirname "$found")\n"$found" -c "import ray" && [ -x "$bin/ray" ] || {{ echo {words}; exit 1; }}\n'
            f'mkdir -p {NODE_FOLDER} && rm -rf {folder} && ln -s "$(dirname "$bin")" {folder}'
        )
        return [Step("find Ray", command, timeout_s=60.0)]
    wanted = f"ray[default]=={runtime.version}" if runtime.version else "ray[default]"
    test = (
        f"import ray, sys; sys.exit(ray.__version__ != {runtime.version!r})"
        if runtime.version
        else "import ray"
    )
    there = f"{folder}/bin/python -c {shlex.quote(test)} 2> /dev/null"
    out, source = [], ""
    if runtime.wheelhouse:
        wheels = os.path.expanduser(runtime.wheelhouse)
        out.append(Step("copy Ray's wheels", mounts=(Mount(f"{NODE_FOLDER}/wheels", wheels),)))
        source = "--no-index --find-links wheels "
    install = " && ".join(
        (
            f"mkdir -p {NODE_FOLDER} && cd {NODE_FOLDER} && rm -rf runtime",
            f"{BASE_PYTHON} -m venv runtime",
            f"runtime/bin/python -m pip install --quiet --disable-pip-version-check {source}{shlex.quote(wanted)}",
        )
    )
    return [*out, Step("install Ray", f"{there} || {{ {install}; }}", timeout_s=_INSTALL_S)]


# -- which workers


@dataclass(frozen=True, slots=True)
class Workers:
    """What has to be done about workers: node type -> how many to make, and the ids of those to end."""

    missing: Mapping[str, int]
    surplus: tuple[str, ...]


def workers(spec: ClusterSpec, listed: Collection[Machine]) -> Workers:
    """Compares what is listed with min_workers, which is how many there are: nothing scales them. Those that were made
    from another spec go, and those that the spec names no more."""
    hashes = {name: node_types.worker_hash(spec, name) for name in spec.available_node_types}
    wanted = Counter({name: kind.min_workers for name, kind in spec.available_node_types.items()})
    surplus = []
    for machine in sorted(listed, key=lambda machine: (machine.launched_s, machine.id)):
        if machine.is_head:
            continue
        is_alike = machine.tags.get(MachineTags.CONFIG_HASH) == hashes.get(machine.node_type)
        if is_alike and not machine.unwanted and wanted[machine.node_type] > 0:
            wanted[machine.node_type] -= 1
        else:
            surplus.append(machine.id)
    return Workers({name: count for name, count in wanted.items() if count > 0}, tuple(surplus))


# -- what Ray says

NODES = "/api/v0/nodes"
"""Route of the head's dashboard: the nodes, as `ray list nodes` has them."""


def alive(answer: Any) -> frozenset[str]:
    """The addresses of the nodes that live, in what `NODES` answers."""
    nodes = answer["data"]["result"]["result"]
    return frozenset(node["node_ip"] for node in nodes if node["state"] == "ALIVE")
