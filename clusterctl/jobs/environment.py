"""The runtime environment that a job is submitted with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from clusterctl.api_client import ApiClient
from clusterctl.errors import CliError, NotFound, UsageProblem
from runtime._core.environments import package_uri
from runtime._packages.archive import PackageError
from runtime._packages.job_files import collect
from runtime.runtime_env import RuntimeEnv

from .client import upload, upload_named
from .package import Package


def read(file: str | None, text: str | None) -> RuntimeEnv:
    """What --runtime-env (a YAML file) or --runtime-env-json says.

    Raises:
        UsageProblem: both are given, or it is no runtime environment.
        NotFound: there is no such file.
    """
    if file is not None and text is not None:
        raise UsageProblem("--runtime-env and --runtime-env-json exclude each other")
    try:
        parsed = json.loads(text or "{}") if file is None else yaml.safe_load(Path(file).read_text())
        if not isinstance(parsed or {}, dict):
            raise TypeError(f"a mapping of its fields is needed, not {parsed!r}")
        return RuntimeEnv(**(parsed or {}))
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file}") from error
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UsageProblem(f"the runtime environment is wrong: {error}") from error


def upload_files(
    api: ApiClient, asked: RuntimeEnv, package: Package, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Uploads the job's folder and what else is local; returns the environment with their URIs.

    Args:
        package: the job's folder.
        variables: win over those of `asked`.

    Raises:
        CliError: a file cannot be packed.
    """
    named = {name: value for name, value in asked.items() if name != "working_dir"}
    try:
        ready, uploads = collect(named)
    except PackageError as error:
        raise CliError(error.message, error.hint) from error
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    upload(api, package)
    for item in uploads:
        upload_named(api, item.key, item.data)
    ready["working_dir"] = package_uri(package.digest)
    ready["env_vars"] = {**ready.get("env_vars", {}), **variables}
    return ready
