"""Kinds of accelerators: resources whose units are devices with ids, and variables that assign these to a process.

`HARDWARE` maps a resource's name to its kind. Amounts from one up take whole devices; a part of one shares a
device with others, where the kind allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Accelerator(msgspec.Struct, frozen=True):
    """One kind.

    Attributes:
        resource: its name as a resource.
        variable: environment variable with the ids that a process may use.
        amounts: the only amounts that can be asked for; empty: any.
        whole: only whole amounts can be asked for.
        known_as: what `opt_out` calls `variable`, where that is not its name.
    """

    resource: str
    variable: str
    amounts: tuple[int, ...] = ()
    whole: bool = False
    known_as: str = ""

    @property
    def opt_out(self) -> str:
        """Environment variable that, when set, keeps us from setting `variable`."""
        return f"RAY_EXPERIMENTAL_NOSET_{self.known_as or self.variable}"

    def check(self, amount: float) -> None:
        """Raises ValueError when this much cannot be asked for."""
        if self.amounts and amount not in self.amounts:
            raise ValueError(
                f"'{self.resource}': {amount} is not a supported chip configuration. Supported configs: {self.amounts}."
            )
        is_whole = float(amount).is_integer()
        if self.whole and not is_whole:
            raise ValueError(f"{self.resource} resource quantity must be whole numbers; {amount} is invalid.")
        if amount > 1 and not is_whole:
            raise ValueError(
                f"{self.resource} resource quantities >1 must be whole numbers; {amount} is invalid."
            )

    def environment(self, ids: Sequence[str]) -> dict[str, str]:
        """The variables of a process that may use the devices `ids`."""
        variables = {self.variable: ",".join(ids)}
        if self.resource == "TPU" and len(ids) in _TPU_BOUNDS:
            # A part of a host's chips is a grid of its own: https://github.com/google/jax/issues/14977
            variables["TPU_CHIPS_PER_HOST_BOUNDS"] = _TPU_BOUNDS[len(ids)]
            variables["TPU_HOST_BOUNDS"] = "1,1,1"
        return variables


_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1"}

HARDWARE: Mapping[str, Accelerator] = {
    kind.resource: kind
    for kind in (
        Accelerator("GPU", "CUDA_VISIBLE_DEVICES"),
        Accelerator("TPU", "TPU_VISIBLE_CHIPS", amounts=(1, 2, 4, 8)),
        Accelerator("NPU", "ASCEND_RT_VISIBLE_DEVICES"),
        Accelerator("HPU", "HABANA_VISIBLE_MODULES", whole=True),
        Accelerator("neuron_cores", "NEURON_RT_VISIBLE_CORES", whole=True),
        Accelerator("RBLN", "RBLN_DEVICES", whole=True, known_as="RBLN_RT_VISIBLE_DEVICES"),
        Accelerator("FURIOSA", "FURIOSA_DEVICES", whole=True),
        Accelerator("MBLT", "QBRUNTIME_VISIBLE_DEVICES", whole=True, known_as="MBLT_RT_VISIBLE_DEVICES"),
        Accelerator("TTNPU", "TT_VISIBLE_DEVICES", whole=True, known_as="TENSTORRENT_VISIBLE_DEVICES"),
    )
}


def split_ids(text: str | None) -> list[str] | None:
    """The ids in a variable's value; None when it is not set, so that every device is visible."""
    if text is None:
        return None
    return [] if text in ("", "NoDevFiles") else text.split(",")


def check_amount(resource: str, amount: float) -> None:
    """Raises ValueError when a request for this much of an accelerator can never be met."""
    kind = HARDWARE.get(resource)
    if kind is not None:
        kind.check(amount)
