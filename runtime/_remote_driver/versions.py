"""Whether a program and a head can work together: what is pickled on one side is rebuilt on the other. Pure but for
`own_version`."""

from __future__ import annotations

import sys
from importlib import metadata

from .messages import PROTOCOL


def own_python() -> str:
    """The version of this interpreter."""
    return ".".join(map(str, sys.version_info[:3]))


def own_version() -> str:
    """The version of the installed distribution; "" where there is no metadata, as on machines that `up` sets up."""
    try:
        return metadata.version("clusterctl")
    except metadata.PackageNotFoundError:
        return ""


def mismatch(protocol: int, python: str, version: str, own: tuple[int, str, str] | None = None) -> str:
    """Why this program cannot work with a head of these versions; "" if it can. A version that is not known is no
    obstacle: the protocol decides then."""
    own_protocol, here, ours = own or (PROTOCOL, own_python(), own_version())
    if python.split(".")[:2] != here.split(".")[:2]:
        return (
            f"Python minor versions differ between client and server: this program runs Python {here}, and the "
            f"cluster runs {python}. Functions and values travel pickled, so both need the same minor version."
        )
    if protocol != own_protocol or (version and ours and version != ours):
        return (
            f"clusterctl versions differ between client and server: {ours or 'unknown'} (protocol {own_protocol}) "
            f"here, {version or 'unknown'} (protocol {protocol}) on the cluster. Install the cluster's version "
            "here, or bring the cluster up again with this one."
        )
    return ""
