"""The NVIDIA GPUs of this machine, asked of the driver's own management library (NVML). None without a driver."""

from __future__ import annotations

import os
import re

DRIVER = ("/dev/nvidiactl", "/dev/dxg")
"""Devices of the driver, the second under Windows: without one there is no need to look for its library."""
_MODEL = r"\w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*)"
"""A brand, words in capitals, and the first that has a digit: "Tesla V100-SXM2-16GB", "NVIDIA RTX PRO 6000"."""


def find_gpus() -> tuple[int, str]:
    """How many GPUs there are, and the type of the first ("" when unknown)."""
    if not any(map(os.path.exists, DRIVER)):
        return 0, ""
    import ctypes  # few nodes need it

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0, ""
    if nvml.nvmlInit_v2() != 0:
        return 0, ""
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0 or not count.value:
            return 0, ""
        device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        known = nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
        known = known and nvml.nvmlDeviceGetName(device, name, len(name)) == 0
        return count.value, type_of(name.value.decode(errors="replace")) if known else ""
    finally:
        nvml.nvmlShutdown()


def type_of(product: str) -> str:
    """The accelerator type of a product: "NVIDIA A100-SXM4-40GB" -> "A100"."""
    found = re.match(_MODEL, product)
    if found and len(found[1]) > 1:
        return found[1].replace(" ", "-")
    return product.removeprefix("NVIDIA ").strip().replace(" ", "-")
