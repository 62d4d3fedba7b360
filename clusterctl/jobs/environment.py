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


def read(file: str | None, text: str | None, working_dir: str | None = None) -> RuntimeEnv:
    """What --runtime-env (a YAML file) or --runtime-env-json says, with another working directory if one is given.

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
        return RuntimeEnv(**{**(parsed or {}), **({"working_dir": working_dir} if working_dir else {})})
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file}") from error
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UsageProblem(f"the runtime environment is wrong: {error}") from error


def upload_files(
    api: ApiClient, asked: RuntimeEnv, package: Package | None, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Uploads the job's folder and what else is local; returns the environment with their URIs.

    Args:
        package: the job's folder; None: the working directory of `asked` is no local folder.
        variables: win over those of `asked`.

    Raises:
        CliError: a file cannot be packed.
    """
    named = {name: value for name, value in asked.items() if name != "working_dir" or package is None}
    try:
        ready, uploads = collect(named)
    except PackageError as error:
        raise CliError(error.message, error.hint) from error
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    if package is not None:
        upload(api, package)
        ready["working_dir"] = package_uri(package.digest)
    for item in uploads:
        upload_named(api, item.key, item.data)
    if variables:
        ready["env_vars"] = {**ready.get("env_vars", {}), **variables}
    return ready
