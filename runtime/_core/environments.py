"""Runtime environments as data: their canonical text, how a child's is made of its parent's, and the names of
packages. Pure.

An environment is a dict of JSON values with the keys of `runtime.runtime_env.RuntimeEnv`. On the wire it is canonical
JSON, so that equal environments are equal strings; "" stands for "that of the job".
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

INSTALLERS = ("pip", "uv", "conda")
"""Keys of which an environment has one at most."""
REMOTE_SCHEMES = ("http", "https", "s3", "gs", "azure", "abfss", "file")
ARCHIVE_SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar.xz")
PACKAGES = "packages"
"""The namespace of the key-value store that holds packages, by name."""
PACKAGE_HOLDS = "package_holds"
"""The namespace in which somebody who is no job keeps packages: a name of the holder's choice, and a `hold`."""
_PACKAGE_SCHEME = "gcs://"
_PACKAGE = re.compile(
    r"_ray_pkg_([0-9a-f]{64})(\.zip|\.tar\.gz|\.tgz|\.tar\.xz|\.hook|-[A-Za-z0-9._+-]+\.whl)"
)
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class EnvironmentConflict(ValueError):
    """The environment of a submitted job and that of its driver both set something."""


def canonical(env: Mapping[str, Any]) -> str:
    """The environment's text: equal for equal environments. "" for an empty one."""
    return json.dumps(env, sort_keys=True) if env else ""


def inherit(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of a task or actor: its own fields, and those of its caller otherwise.

    Variables are merged one by one. Modules to preload are those of both. Of pip, uv and conda, the child's replaces
    the parent's.
    """
    merged = dict(parent)
    if any(child.get(name) for name in INSTALLERS):
        for name in INSTALLERS:
            merged.pop(name, None)
    variables = {**(parent.get("env_vars") or {}), **(child.get("env_vars") or {})}
    modules = dict.fromkeys([*(parent.get("preload") or ()), *(child.get("preload") or ())])
    merged.update(child)
    if variables:
        merged["env_vars"] = variables
    if modules:
        merged["preload"] = list(modules)
    return merged


def of_driver(
    job: Mapping[str, Any], own: Mapping[str, Any], override: bool, overridable: Collection[str] = ()
) -> dict[str, Any]:
    """The environment of a submitted job whose driver passes one to `init` too.

    Args:
        override: the driver's wins where both set something.
        overridable: fields of the job's that the driver's always win over.

    Raises:
        EnvironmentConflict: both set a field, or a variable, and `override` is false.
    """
    job_variables, own_variables = job.get("env_vars") or {}, own.get("env_vars") or {}
    if not override:
        fields = sorted((job.keys() & own.keys()) - {"env_vars", "preload", *overridable})
        both = [
            *fields,
            *(f"env_vars[{name!r}]" for name in sorted(job_variables.keys() & own_variables.keys())),
        ]
        if both:
            raise EnvironmentConflict(
                f"Failed to merge the Job's runtime env {dict(job)} with that of init(), {dict(own)}, because of a "
                f"conflict: both set {', '.join(both)}. Set it in one place only, or let init() win with the "
                "environment variable RAY_OVERRIDE_JOB_RUNTIME_ENV=1."
            )
    return inherit(job, own)


def expand(variables: Mapping[str, str], outer: Mapping[str, str]) -> dict[str, str]:
    """Replaces `${NAME}` and `$NAME` by the variable of that name: one above it here, else in `outer`. Where there is
    none, `${NAME}` becomes nothing, and `$NAME` stays."""
    expanded: dict[str, str] = {}

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return expanded.get(name, outer.get(name, "" if match[1] else match[0]))

    for name, value in variables.items():
        expanded[name] = _REFERENCE.sub(value_of, value)
    return expanded


def package_uri(digest: str, suffix: str = ".zip") -> str:
    """Where the package of that SHA-256 (hexadecimal) is found.

    Args:
        suffix: the end of an archive's name; "-" and the whole name of a wheel; ".hook" for a pickled function.
    """
    return f"{_PACKAGE_SCHEME}{package_key(digest, suffix)}"


def package_key(digest: str, suffix: str = ".zip") -> str:
    """The package's key in the namespace `PACKAGES`."""
    return f"_ray_pkg_{digest}{suffix}"


def parse_package_uri(uri: str) -> tuple[str, str] | None:
    """Key and digest of a package in the control store; None when the URI is another."""
    match = _PACKAGE.fullmatch(uri.removeprefix(_PACKAGE_SCHEME)) if uri.startswith(_PACKAGE_SCHEME) else None
    return (match[0], match[1]) if match else None


def packages_in(text: str) -> set[str]:
    """The keys of all packages that a text names: a canonical environment, a job's configuration, a `hold`."""
    return {match[0] for match in _PACKAGE.finditer(text)}


def hold(packages: Collection[str], until_s: float | None = None) -> bytes:
    """A value in the namespace `PACKAGE_HOLDS`.

    Args:
        packages: keys, or URIs.
        until_s: unix time at which it ends; None: when it is deleted.
    """
    return json.dumps({"packages": sorted(packages), "until_s": until_s}).encode()


def scheme_of(uri: str) -> str:
    """The scheme of a URI; "" for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme if separator else ""
