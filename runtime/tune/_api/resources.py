"""What a trial needs of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class PlacementGroupFactory:
    """The resources of a trial, as the bundles of a placement group. The trial itself runs in the first one; the
    others are for the tasks and actors that it starts.

    Args:
        bundles: for example [{"CPU": 1}, {"CPU": 2}]. The first may be empty: the trial itself needs nothing.
        strategy: of the placement group: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Raises:
        ValueError: there is no bundle, an amount is negative, or the strategy is another one.
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK") -> None:
        strategies = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
        if strategy not in strategies:
            raise ValueError(f"strategy must be one of {', '.join(strategies)}, not {strategy!r}.")
        if not bundles:
            raise ValueError("A PlacementGroupFactory needs at least one bundle; {} asks for nothing.")
        for number, bundle in enumerate(bundles):
            wrong = {name: amount for name, amount in bundle.items() if amount < 0}
            if wrong:
                raise ValueError(f"Amounts must not be negative: bundle {number} has {wrong}.")
        cleaned = [{name: float(amount) for name, amount in each.items() if amount} for each in bundles]
        self.bundles = [cleaned[0], *(bundle for bundle in cleaned[1:] if bundle)]
        self.strategy = strategy

    @property
    def head_cpus(self) -> float:
        """The CPUs of the first bundle."""
        return self.bundles[0].get("CPU", 0.0)

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    @property
    def shape(self) -> tuple[Any, ...]:
        """Equal for factories that ask for the same."""
        return self.strategy, *(tuple(sorted(bundle.items())) for bundle in self.bundles)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self.bundles!r}, strategy={self.strategy!r})"


def resources_to_factory(
    resources: Mapping[str, Any] | PlacementGroupFactory | None,
) -> PlacementGroupFactory:
    """The placement group of a trial that needs these.

    Args:
        resources: for example {"CPU": 2, "GPU": 0.5, "custom": 1}; "cpu", "gpu" and "memory" are understood, too.
            None: one CPU.

    Raises:
        TypeError: it is neither.
    """
    if resources is None:
        return PlacementGroupFactory([{"CPU": 1.0}])
    if isinstance(resources, PlacementGroupFactory):
        return resources
    if not isinstance(resources, Mapping):
        raise TypeError(
            "Resources must be a dict, a PlacementGroupFactory, or a function of the configuration that returns one, "
            f"not {type(resources).__name__}."
        )
    names = {"cpu": "CPU", "gpu": "GPU"}
    return PlacementGroupFactory([{names.get(name, name): amount for name, amount in resources.items()}])
