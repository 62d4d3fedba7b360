"""What a node has, who holds how much of it, which GPUs exactly, and the bundles set aside for placement
groups. Pure.

A committed bundle offers its resources under group names (see `placement.group_resources`). A request for any
bundle of a group (`CPU_group_<pg>`) is resolved to one bundle that covers all of it, so that nothing is
promised twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .placement import group_resources, is_group_resource
from .resources import UNIT, Resources, add, fits, subtract

_GPU = "GPU"
Share = tuple[str, int]
"""A GPU id and the units of it that are held."""


@dataclass(slots=True, eq=False)
class Allocation:
    """Resources held by one lease, actor or bundle. Empty again after `Ledger.release`."""

    resources: Resources
    gpu_shares: list[Share] = field(default_factory=list)
    bundle: tuple[bytes, int] | None = None
    lent: Resources = field(default_factory=dict)

    @property
    def gpu_ids(self) -> list[str]:
        return [gpu_id for gpu_id, _ in self.gpu_shares]


@dataclass(slots=True)
class _Bundle:
    parent: Allocation
    offered: Resources = field(default_factory=dict)  # empty until committed
    gpus: dict[str, int] = field(default_factory=dict)
    users: list[Allocation] = field(default_factory=list)


class Ledger:
    """The accounts of one node. `total` and `available` are live: read them, do not keep copies."""

    def __init__(self, total: Mapping[str, int]) -> None:
        self.total: Resources = dict(total)
        self.available: Resources = dict(total)
        self._gpus = {str(index): UNIT for index in range(total.get(_GPU, 0) // UNIT)}
        self._bundles: dict[tuple[bytes, int], _Bundle] = {}

    def allocate(self, request: Mapping[str, int]) -> Allocation | None:
        """Takes `request`, or None when it does not fit now (by amount, by GPU, or by bundle)."""
        if not fits(request, self.available):
            return None
        grouped = any(is_group_resource(name) for name in request)
        key: tuple[bytes, int] | None = None
        resources = dict(request)
        if grouped:
            found = self._resolve(resources)
            if found is None:
                return None
            key, resources = found
        gpus = self._gpus if key is None else self._bundles[key].gpus
        wanted = _gpu_amount(resources)
        shares = _pick_gpus(gpus, wanted) if wanted else []
        if shares is None:
            return None
        for gpu_id, units in shares:
            gpus[gpu_id] -= units
        subtract(self.available, resources)
        allocation = Allocation(resources, shares, key)
        if key is not None:
            self._bundles[key].users.append(allocation)
        return allocation

    def release(self, allocation: Allocation) -> None:
        """Gives everything back. Repeating it does nothing."""
        self.shrink(allocation, {})
        if allocation.bundle is not None:
            bundle = self._bundles.get(allocation.bundle)
            if bundle is not None and allocation in bundle.users:
                bundle.users.remove(allocation)
            allocation.bundle = None

    def shrink(self, allocation: Allocation, keep: Mapping[str, int]) -> None:
        """Keeps only `keep` (names that the allocation holds; more than held is cut) and gives the rest
        back."""
        self.unlend(allocation)
        wanted = dict(keep) if allocation.bundle is None else _with_bundle_names(keep, *allocation.bundle)
        kept = {
            name: min(amount, wanted[name])
            for name, amount in allocation.resources.items()
            if wanted.get(name)
        }
        back = dict(allocation.resources)
        subtract(back, kept)
        add(self.available, back)
        if allocation.gpu_shares and not _gpu_amount(kept):
            gpus = self._gpus_of(allocation)
            for gpu_id, units in allocation.gpu_shares:
                gpus[gpu_id] += units
            allocation.gpu_shares = []
        allocation.resources = kept

    def lend(self, allocation: Allocation) -> bool:
        """Its task waits: others may use its CPUs. True when that freed something."""
        if allocation.lent:
            return False
        lent = {name: amount for name, amount in allocation.resources.items() if _is_cpu(name)}
        allocation.lent = lent
        add(self.available, lent)
        return bool(lent)

    def unlend(self, allocation: Allocation) -> None:
        """Takes lent CPUs back at once, into the negative if others have them."""
        if allocation.lent:
            subtract(self.available, allocation.lent)
            allocation.lent = {}

    # -- bundles

    def prepare_bundle(self, pg_id: bytes, index: int, resources: Mapping[str, int]) -> bool:
        """Sets a bundle's resources aside. True when done, also before; False when they are not there now."""
        key = (pg_id, index)
        if key in self._bundles:
            return True
        parent = self.allocate(resources)
        if parent is None:
            return False
        self._bundles[key] = _Bundle(parent)
        return True

    def commit_bundle(self, pg_id: bytes, index: int) -> bool:
        """Offers a prepared bundle under its group names. False when it was never prepared."""
        bundle = self._bundles.get((pg_id, index))
        if bundle is None:
            return False
        if not bundle.offered:
            bundle.offered = group_resources(bundle.parent.resources, pg_id.hex(), index)
            bundle.gpus = dict(bundle.parent.gpu_shares)
            add(self.total, bundle.offered)
            add(self.available, bundle.offered)
        return True

    def return_bundle(self, pg_id: bytes, index: int) -> list[Allocation]:
        """Ends a bundle and gives its resources back to the node. Returns the allocations inside, void now:
        whoever holds them must be stopped. Unknown bundles are ignored."""
        bundle = self._bundles.pop((pg_id, index), None)
        if bundle is None:
            return []
        users = bundle.users
        for allocation in users:
            if allocation.lent:
                subtract(self.available, allocation.lent)
            add(self.available, allocation.resources)
            allocation.resources, allocation.gpu_shares, allocation.lent = {}, [], {}
            allocation.bundle = None
        subtract(self.total, bundle.offered)
        subtract(self.available, bundle.offered)
        self.release(bundle.parent)
        return users

    def bundles(self) -> list[tuple[bytes, int]]:
        """The bundles that are prepared or committed here."""
        return list(self._bundles)

    def _resolve(self, request: Resources) -> tuple[tuple[bytes, int], Resources] | None:
        """Finds the bundle for a request with group names; adds the names of that bundle if only the group is
        named."""
        for key, bundle in self._bundles.items():
            resources = _with_bundle_names(request, *key)
            named = [name for name in resources if is_group_resource(name)]
            if all(name in bundle.offered for name in named) and fits(resources, self.available):
                wanted = _gpu_amount(resources)
                if not wanted or _pick_gpus(bundle.gpus, wanted) is not None:
                    return key, resources
        return None

    def _gpus_of(self, allocation: Allocation) -> dict[str, int]:
        return self._gpus if allocation.bundle is None else self._bundles[allocation.bundle].gpus


def _with_bundle_names(request: Mapping[str, int], pg_id: bytes, index: int) -> Resources:
    """`request` with each name of the group repeated under the bundle's own name."""
    pg_hex = pg_id.hex()
    resources = dict(request)
    for name, amount in request.items():
        base, mark, rest = name.rpartition("_group_")
        if mark and rest == pg_hex:
            resources[f"{base}_group_{index}_{pg_hex}"] = amount
    return resources


def _is_cpu(name: str) -> bool:
    return name == "CPU" or name.startswith("CPU_group_")


def _gpu_amount(resources: Mapping[str, int]) -> int:
    own = resources.get(_GPU, 0)
    if own:
        return own
    return max((amount for name, amount in resources.items() if name.startswith("GPU_group_")), default=0)


def _pick_gpus(free: Mapping[str, int], wanted: int) -> list[Share] | None:
    """Whole GPUs for amounts from one up; a part of the fullest GPU that still fits for less."""
    if wanted >= UNIT:
        whole = [gpu_id for gpu_id, units in free.items() if units == UNIT]
        count = -(-wanted // UNIT)
        return [(gpu_id, UNIT) for gpu_id in whole[:count]] if len(whole) >= count else None
    fitting = [(units, gpu_id) for gpu_id, units in free.items() if units >= wanted]
    if not fitting:
        return None
    return [(min(fitting)[1], wanted)]
