"""What a node has, who holds how much of it, which accelerators exactly, and the bundles set aside for placement
groups. Pure.

A committed bundle offers its resources under group names (see `placement.group_resources`). A request for any
bundle of a group (`CPU_group_<pg>`) is resolved to one bundle that covers all of it, so that nothing is
promised twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from .accelerators import HARDWARE
from .bundle_choice import Preference, any_bundle, preference
from .bundles import GROUP_HEX_DIGITS, base_name
from .placement import group_resources, is_group_resource
from .resources import UNIT, Resources, add, fits, subtract
from .worker_cap import is_lent

Share = tuple[str, int]
"""A device's id and the units of it that are held."""

Devices = dict[str, dict[str, int]]
"""Per accelerator resource, the free units of each device by id."""


class Allocation(msgspec.Struct, eq=False):
    """Resources held by one lease, actor or bundle. Empty again after `Ledger.release`.

    Attributes:
        kept: what of them is not lent while the holder waits: the lifetime resources of an actor.
    """

    resources: Resources
    shares: dict[str, list[Share]] = msgspec.field(default_factory=dict)
    bundle: tuple[bytes, int] | None = None
    lent: Resources = msgspec.field(default_factory=dict)
    kept: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def devices(self) -> tuple[str, ...]:
        """The kinds of accelerators that it may use."""
        return tuple(sorted(self.shares))

    @property
    def gpu_ids(self) -> list[str]:
        """The GPUs it may use."""
        return [device for device, _ in self.shares.get("GPU", ())]

    @property
    def other_ids(self) -> dict[str, list[str]]:
        """The devices of other kinds that it may use, by accelerator resource."""
        return {
            name: [device for device, _ in shares] for name, shares in self.shares.items() if name != "GPU"
        }


class _Bundle(msgspec.Struct):
    parent: Allocation
    offered: Resources = msgspec.field(default_factory=dict)  # empty until committed
    devices: Devices = msgspec.field(default_factory=dict)
    users: list[Allocation] = msgspec.field(default_factory=list)


class Ledger:
    """The accounts of one node. `total` and `available` are live: read them, do not keep copies."""

    def __init__(self, total: Mapping[str, int]) -> None:
        self.total: Resources = dict(total)
        self.available: Resources = dict(total)
        self._devices: Devices = {
            name: {str(index): UNIT for index in range(total[name] // UNIT)}
            for name in HARDWARE
            if name in total
        }
        self._bundles: dict[tuple[bytes, int], _Bundle] = {}

    def allocate(self, request: Mapping[str, int]) -> Allocation | None:
        """Takes `request`, or None when it does not fit now (by amount, by device, or by bundle)."""
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
        devices = self._devices if key is None else self._bundles[key].devices
        shares = _pick_devices(devices, resources) if devices else {}
        if shares is None:
            return None
        for name, picked in shares.items():
            for device, units in picked:
                devices[name][device] -= units
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
        wanted = _names_here(keep, allocation)
        kept = {
            name: min(amount, wanted[name])
            for name, amount in allocation.resources.items()
            if wanted.get(name)
        }
        back = dict(allocation.resources)
        subtract(back, kept)
        add(self.available, back)
        if allocation.shares:
            devices = self._devices_of(allocation)
            held = _device_amounts(kept, allocation.shares)
            for name in [name for name in allocation.shares if name not in held]:
                for device, units in allocation.shares.pop(name):
                    devices[name][device] += units
        allocation.resources = kept

    def lend(self, allocation: Allocation, whole: bool = False) -> bool:
        """Its task waits: others may use its CPUs; those that are `kept` only if the `whole` is lent. True when that
        freed something.

        CPUs of a placement group are lent within it. If the `whole` is lent, tasks outside may use them, too: what it
        waits for may be there, and the group may hold all CPUs. Until it has them back, they may be used twice.
        """
        if allocation.lent:
            return False
        kept = {} if whole else _names_here(allocation.kept, allocation)
        lent = {
            name: amount - kept.get(name, 0)
            for name, amount in allocation.resources.items()
            if is_lent(name) and amount > kept.get(name, 0)
        }
        if whole and allocation.bundle is not None and lent:
            lent["CPU"] = max(lent.values())  # the same CPUs have several names in the group
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
            bundle.devices = {name: dict(shares) for name, shares in bundle.parent.shares.items()}
            add(self.total, bundle.offered)
            add(self.available, bundle.offered)
        return True

    def return_bundle(self, pg_id: bytes, index: int) -> list[Allocation]:
        """Ends a bundle and gives its resources back to the node. Returns the allocations inside, void now:
        their holders must be stopped. Unknown bundles are ignored."""
        bundle = self._bundles.pop((pg_id, index), None)
        if bundle is None:
            return []
        users = bundle.users
        for allocation in users:
            if allocation.lent:
                subtract(self.available, allocation.lent)
            add(self.available, allocation.resources)
            allocation.resources, allocation.shares, allocation.lent = {}, {}, {}
            allocation.bundle = None
        subtract(self.total, bundle.offered)
        subtract(self.available, bundle.offered)
        self.release(bundle.parent)
        return users

    def reserve_bundles(self, pg_id: bytes, bundles: Iterable[tuple[int, Mapping[str, int]]]) -> bool:
        """Prepares and commits all of these bundles, by index, or none of them. True when done, also before."""
        bundles = list(bundles)
        held = {index for index, _ in bundles if (pg_id, index) in self._bundles}
        if not all(self.prepare_bundle(pg_id, index, resources) for index, resources in bundles):
            for index, _ in bundles:
                if index not in held:
                    self.return_bundle(pg_id, index)
            return False
        for index, _ in bundles:
            self.commit_bundle(pg_id, index)
        return True

    def bundles(self) -> list[tuple[bytes, int]]:
        """The bundles that are prepared or committed here."""
        return list(self._bundles)

    def _resolve(self, request: Resources) -> tuple[tuple[bytes, int], Resources] | None:
        """Finds the bundle for a request with group names, the one that suits it best if only the group is named; adds
        the names of that bundle."""
        pg_hex = next(name for name in request if is_group_resource(name))[-GROUP_HEX_DIGITS:]
        pg_id = bytes.fromhex(pg_hex)
        found = []
        for key, bundle in self._bundles.items():
            if key[0] != pg_id:
                continue
            resources = _with_bundle_names(request, *key)
            named = [name for name in resources if is_group_resource(name)]
            if (
                all(name in bundle.offered for name in named)
                and fits(resources, self.available)
                and (not bundle.devices or _pick_devices(bundle.devices, resources) is not None)
            ):
                found.append((key, resources))
        if len(found) < 2:  # as always when the bundle is named
            return found[0] if found else None
        wanted, _ = any_bundle(request) or (request, pg_hex)
        return min(found, key=lambda one: (self._preference(wanted, one[0]), one[0]))

    def _preference(self, wanted: Resources, key: tuple[bytes, int]) -> Preference:
        pg_hex, index = key[0].hex(), key[1]
        reserved = self._bundles[key].parent.resources
        free = {name: self.available.get(f"{name}_group_{index}_{pg_hex}", 0) for name in reserved}
        return preference(wanted, reserved, free)

    def _devices_of(self, allocation: Allocation) -> Devices:
        return self._devices if allocation.bundle is None else self._bundles[allocation.bundle].devices


def _names_here(amounts: Mapping[str, int], allocation: Allocation) -> Mapping[str, int]:
    return amounts if allocation.bundle is None else _with_bundle_names(amounts, *allocation.bundle)


def _with_bundle_names(request: Mapping[str, int], pg_id: bytes, index: int) -> Resources:
    """`request` with each name of the group repeated under the bundle's own name."""
    pg_hex = pg_id.hex()
    resources = dict(request)
    for name, amount in request.items():
        base, mark, rest = name.rpartition("_group_")
        if mark and rest == pg_hex:
            resources[f"{base}_group_{index}_{pg_hex}"] = amount
    return resources


def _device_amounts(resources: Mapping[str, int], kinds: Iterable[str]) -> dict[str, int]:
    """How much of each accelerator in `kinds` a request takes, under its own name or that of a bundle."""
    amounts: dict[str, int] = {}
    for name, amount in resources.items():
        kind = base_name(name)
        if kind in kinds:
            amounts[kind] = max(amount, amounts.get(kind, 0))
    return amounts


def _pick_devices(free: Devices, resources: Mapping[str, int]) -> dict[str, list[Share]] | None:
    picked: dict[str, list[Share]] = {}
    for name, amount in _device_amounts(resources, free).items():
        shares = _pick(free[name], amount)
        if shares is None:
            return None
        picked[name] = shares
    return picked


def _pick(free: Mapping[str, int], wanted: int) -> list[Share] | None:
    """Whole devices for amounts from one up; a part of the fullest device that still fits for less."""
    if wanted >= UNIT:
        whole = [device for device, units in free.items() if units == UNIT]
        count = -(-wanted // UNIT)
        return [(device, UNIT) for device in whole[:count]] if len(whole) >= count else None
    fitting = [(units, device) for device, units in free.items() if units >= wanted]
    if not fitting:
        return None
    return [(min(fitting)[1], wanted)]
