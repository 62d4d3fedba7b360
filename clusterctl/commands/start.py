"""`clusterctl start`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import output

from .options import Json

if TYPE_CHECKING:
    from clusterctl.startup.order import JoinToken
    from clusterctl.startup.record import DaemonRecord


def start(
    head: Annotated[bool, typer.Option("--head", help="Start a head on this machine.")] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Join the cluster of this head instead.")
    ] = None,
    secret_file: Annotated[str | None, typer.Option(help="A file with the cluster's secret.")] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            "--node-ip-address",
            help="The address of this machine, for the other nodes. Default: 127.0.0.1 of a head; of a node the one by "
            "which it reaches the head.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of a head's control store. 0: any free port.")] = 0,
    api_port: Annotated[
        int, typer.Option("--api-port", "--dashboard-port", help="Port of a head's API. 0: any free port.")
    ] = 0,
    client_port: Annotated[
        int,
        typer.Option(
            "--ray-client-server-port",
            min=0,
            max=65535,
            help="Port of a head for remote drivers (ray://). 0: 10001, or any free port.",
        ),
    ] = 0,
    num_cpus: Annotated[float | None, typer.Option(help="CPUs of this node.")] = None,
    num_gpus: Annotated[float | None, typer.Option(help="GPUs of this node.")] = None,
    memory: Annotated[int | None, typer.Option(help="Memory of this node, in bytes.")] = None,
    object_store_memory: Annotated[
        int | None, typer.Option(help="Shared memory for objects, in bytes.")
    ] = None,
    resources: Annotated[str, typer.Option(metavar="JSON", help="Other resources of this node.")] = "{}",
    labels: Annotated[str, typer.Option(metavar="K=V,...", help="Labels of this node, also as JSON.")] = "",
    object_spilling_directory: Annotated[
        str | None, typer.Option(help="Folder for spilled objects. Default: the session's folder.")
    ] = None,
    block: Annotated[
        bool,
        typer.Option("--block", help="Stay in the foreground. SIGTERM or Ctrl-C ends the daemons."),
    ] = False,
    node_type: Annotated[str, typer.Option(help="Its node type.")] = "",
    instance_id: Annotated[str, typer.Option(help="The autoscaler's name of this machine.")] = "",
    config: Annotated[str | None, typer.Option(hidden=True)] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the daemons that `start` started on this machine.")
    ] = False,
    json: Json = False,
) -> None:
    """Starts a head or a node on this machine.

    For machines that are joined by hand; `clusterctl up` does this by itself.

    \b
      clusterctl start --head                                    prints how other machines join
      clusterctl start --address 10.0.0.1:4321 --secret-file F   on the other machines
      CLUSTERCTL_JOIN_TOKEN=... clusterctl start --block         in containers (`clusterctl node token` prints it)
      clusterctl start --stop                                    stops either
    """
    import msgspec

    from clusterctl.errors import UsageProblem
    from clusterctl.head import daemons, worker
    from clusterctl.startup.order import JoinOrder
    from runtime._core.labels import parse_labels

    ways = sum((head, address is not None, stop))
    token = _token() if not ways else None
    if ways != 1 and token is None:
        raise UsageProblem(
            "say one of --head, --address HOST:PORT and --stop, or set CLUSTERCTL_JOIN_TOKEN to join by it"
        )
    if stop:
        ended = daemons.stop_here()
        output.say(f"{ended} ended" if ended else "nothing was started here")
        return
    try:
        amounts = msgspec.json.decode(resources, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise UsageProblem(f"--resources takes JSON, e.g. '{{\"CPU\": 4}}': {error}") from error
    named = {
        "CPU": num_cpus,
        "GPU": num_gpus,
        "memory": memory,
        "object_store_memory": object_store_memory,
    }
    for name, amount in named.items():
        if amount is None:
            continue
        if name in amounts:
            raise UsageProblem(f"--resources has {name}, which has an option of its own: give one of them")
        if amount < 0:
            raise UsageProblem(f"a node cannot bring {amount:g} {name}")
        amounts[name] = amount
    try:
        marks = parse_labels(labels)
    except ValueError as error:
        raise UsageProblem(f"--labels: {error}") from error
    if object_spilling_directory is not None:
        daemons.spill_to(object_spilling_directory)
    if head:
        record = daemons.start_head(
            config, secret_file, host or "127.0.0.1", port, api_port, client_port, amounts, marks
        )
    elif token is not None:
        record = worker.join(
            msgspec.structs.replace(
                token,
                resources=token.resources | amounts,
                labels=token.labels | marks,
                node_type=node_type or token.node_type,
                instance_id=instance_id or token.instance_id,
            ),
            host or "",
        )
    else:
        assert address is not None
        if secret_file is None:
            raise UsageProblem("--address needs --secret-file: the head's secret, copied to this machine")
        record = worker.start_worker(
            JoinOrder(
                address=address,
                secret_file=secret_file,
                host=host or worker.own_address(address),
                resources=amounts,
                labels=marks,
                node_type=node_type,
                instance_id=instance_id,
            )
        )
    if json:
        lines = [msgspec.json.encode(record).decode()]
    elif not head:
        lines = [f"this machine has joined {record.control_address} (node {record.node_id[:12]})"]
    else:
        lines = [
            f"the head runs: control store {record.control_address}, API {record.api_url}",
            f"its secret: {record.secret_file}",
            f"other machines join with: clusterctl start --address {record.control_address} --secret-file FILE",
        ]
        if record.client_address:
            lines.append(f"remote drivers: {_way_in(record)}")
    if block:
        daemons.wait_for_end(record, lambda: output.say("\n".join(lines)))
    else:
        output.say("\n".join(lines))


def _token() -> JoinToken | None:
    """What this machine is to join by. Nothing that is started here inherits it."""
    from clusterctl import settings
    from clusterctl.errors import UsageProblem
    from clusterctl.startup.order import JoinToken

    text = settings.take_join_token()
    if not text:
        return None
    try:
        return JoinToken.parse(text.strip())
    except ValueError as error:
        raise UsageProblem(f"CLUSTERCTL_JOIN_TOKEN: {error}") from None


def _way_in(record: DaemonRecord) -> str:
    """How remote drivers come in, or why they cannot."""
    from pathlib import Path

    from clusterctl.api_client import ApiClient

    from . import remote_drivers

    secret = Path(record.secret_file).read_text(encoding="ascii").strip()
    address, _, problem = remote_drivers.listening(ApiClient(record.api_url, secret, "this machine"))
    return (
        f"RAY_ADDRESS=ray://{address}, RAY_AUTH_TOKEN_PATH=FILE (the secret)"
        if address
        else f"none: {problem}"
    )
