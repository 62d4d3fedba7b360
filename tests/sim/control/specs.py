"""Short ways to say what an actor or a placement group wants."""

from __future__ import annotations

from collections.abc import Mapping

from runtime._core.resources import to_units
from runtime._wire.messages.base import ResourceRequest, SchedulingStrategy, WorkerAddress
from runtime._wire.messages.control import ActorSpec
from runtime._wire.messages.groups import CreatePlacementGroup

JOB = b"\1\0\0\0"
DRIVER = WorkerAddress(b"driver".ljust(28, b"."), b"node-0".ljust(28, b"."), "")


def node_id(number: int) -> bytes:
    return f"node-{number}".encode().ljust(28, b".")


def actor_id(number: int) -> bytes:
    return number.to_bytes(12, "big") + JOB


def group_id(number: int) -> bytes:
    return number.to_bytes(14, "big") + JOB


def actor(
    number: int,
    *,
    needs: Mapping[str, float] | None = None,
    held: Mapping[str, float] | None = None,
    units: Mapping[str, int] | None = None,
    name: str = "",
    max_restarts: int = 0,
    detached: bool = False,
    owner: WorkerAddress = DRIVER,
    strategy: SchedulingStrategy | None = None,
    pg_id: bytes = b"",
    job_id: bytes = JOB,
    is_spare: bool = False,
) -> ActorSpec:
    """By default: one CPU to be placed and to live, no restarts, owned by the driver of the first job."""
    placement = dict(units) if units is not None else to_units({"CPU": 1} if needs is None else needs)
    return ActorSpec(
        actor_id=actor_id(number),
        job_id=job_id,
        class_name="A",
        name=name,
        namespace="ns",
        owner=owner,
        detached=detached,
        max_restarts=max_restarts,
        max_task_retries=0,
        max_concurrency=1,
        placement=ResourceRequest(placement, strategy or SchedulingStrategy(), pg_id),
        held=placement if held is None else to_units(held),
        runtime_env="",
        function_key=b"",
        creation=b"x",
        is_spare=is_spare,
    )


def group(
    number: int,
    bundles: list[Mapping[str, float]],
    strategy: str = "PACK",
    *,
    name: str = "",
    detached: bool = False,
    selectors: list[dict[str, str]] | None = None,
) -> CreatePlacementGroup:
    return CreatePlacementGroup(
        pg_id=group_id(number),
        name=name,
        namespace="ns",
        strategy=strategy,
        bundles=[to_units(bundle) for bundle in bundles],
        job_id=JOB,
        detached=detached,
        label_selectors=selectors or [],
    )
