"""The runtime environment of a driver's job, merged from all places that can set it."""

from __future__ import annotations

import importlib
import json
import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from runtime import exceptions
from runtime._core import environments
from runtime._process.core_worker import Core
from runtime._system import settings
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorReply
from runtime._wire.messages.control import KvKeyList, KvKeys, KvPut
from runtime.runtime_env import RuntimeEnv

if TYPE_CHECKING:
    from runtime._packages.job_files import Upload

log = logging.getLogger("runtime")
JOB_VARIABLE = settings.JOB_CONFIG.name
"""Set for the driver of a submitted job: see `job_config_json`. Ray's RAY_JOB_CONFIG_JSON_ENV_VAR does the same."""
_UPLOAD_TIMEOUT_S = 120.0

JobEnvironment: TypeAlias = "tuple[dict[str, Any], list[Upload]]"
"""An environment without local files, and the packages that it names."""


def of_init(runtime_env: Any, job_config: Any, skip_hook: bool = False) -> JobEnvironment:
    """The job's environment with its local files packed, and the packages, which `upload` takes once connected.

    Args:
        runtime_env: the argument of `init`; if None, that of `job_config`.
        skip_hook: the hook of RAY_RUNTIME_ENV_HOOK is not called.

    Raises:
        TypeError, ValueError: see `RuntimeEnv`; also a conflict with the submitted job's environment.
        RuntimeEnvSetupError: the files cannot be packed, or the setup hook cannot be pickled.
    """
    given = runtime_env
    hook_path = settings.RUNTIME_ENV_HOOK.get()
    if hook_path and not skip_hook:
        module, _, name = hook_path.rpartition(".")
        given = getattr(importlib.import_module(module), name)(given)
    if given is None:
        given = getattr(job_config, "runtime_env", None)
    given = _with_uv_run(given or {})
    env, uploads = _packed(given) if given else ({}, [])
    config = settings.JOB_CONFIG.get()
    override = settings.OVERRIDE_JOB_RUNTIME_ENV.get()
    job, overridable = config.get("runtime_env") or {}, config.get("overridable") or ()
    return environments.of_driver(job, env, override, overridable), uploads


def job_config_json(runtime_env: Mapping[str, Any], overridable: Sequence[str]) -> str:
    """The value of CLUSTERCTL_JOB_CONFIG: a submitted job's environment, and the fields that its driver may replace."""
    return json.dumps({"runtime_env": runtime_env, "overridable": list(overridable)})


def _with_uv_run(given: Any) -> Any:
    """Workers of a driver that `uv run` started are started so too, in a copy of its folder, unless the environment
    says how, or RAY_ENABLE_UV_RUN_RUNTIME_ENV is 0."""
    if not settings.UV_RUN.get() or not isinstance(given, dict):
        return given
    if any(given.get(name) for name in ("py_executable", *environments.INSTALLERS)):
        return given
    try:
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except OSError:
        return given
    command = command_of_uv_run(parent, sys.orig_argv)
    if not command:
        return given
    return {"working_dir": os.getcwd(), **given, "py_executable": shlex.join(command)}


def command_of_uv_run(parent: Sequence[str], driver: Sequence[str]) -> list[str]:
    """The command that starts another Python as `uv run` started the driver's; [] when it did not.

    Args:
        parent: the command line of the driver's parent.
        driver: that of the driver: Python, its options, the script and its arguments.
    """
    if len(parent) < 2 or os.path.basename(parent[0]) != "uv" or parent[1] != "run":
        return []
    arguments = list(driver[1:])
    if not arguments or list(parent[-len(arguments) :]) != arguments:
        return []
    command = list(parent[: -len(arguments)])
    while command[-1] == "--" or os.path.basename(command[-1]).startswith("python"):
        command.pop()
    return command


def _packed(given: Any) -> JobEnvironment:
    if not isinstance(given, dict):
        raise TypeError(
            f"runtime_env is a dict or a RuntimeEnv, not {given!r} of type {type(given).__name__}."
        )
    modules = given.get("py_modules")
    if modules is not None and not isinstance(modules, list):
        raise TypeError(
            f"py_modules must be a List of local paths, imported modules, or URIs, got {type(modules)}."
        )
    hook = given.get("worker_process_setup_hook")
    if hook is not None and not isinstance(hook, str) and not callable(hook):
        raise TypeError(
            f"worker_process_setup_hook must be a function, or the path of one, got {type(hook)}."
        )
    from runtime._packages.archive import PackageError
    from runtime._packages.job_files import collect, paths_of_modules

    checked = RuntimeEnv(**{**given, "py_modules": paths_of_modules(modules)})
    try:
        return collect(checked, _pickle)
    except PackageError as error:
        raise exceptions.RuntimeEnvSetupError(
            f"Failed to upload the files of runtime_env to the cluster: {error.message}.\n{error.hint}"
        ) from error


def _pickle(hook: Any) -> bytes:
    try:
        pickled, _ = serialization.dumps_function(hook)
    except Exception as error:
        raise exceptions.RuntimeEnvSetupError(
            f"Failed to export the setup function. {hook!r} cannot be pickled: {error}"
        ) from error
    return bytes(pickled)


def upload(core: Core, uploads: list[Upload]) -> None:
    """Puts packages where the nodes find them, unless they are there already.

    Raises:
        RuntimeEnvSetupError: that failed.
    """
    for package in uploads:
        key, about = package.key.encode(), (package.key, package.what, len(package.data))
        reply = core.call_agent(KvKeys(environments.PACKAGES, key))
        if isinstance(reply, KvKeyList) and key in reply.keys:
            continue
        log.info("Pushing file package %s of %s (%d bytes) to the cluster", *about)
        reply = core.call_agent(KvPut(environments.PACKAGES, key, package.data), _UPLOAD_TIMEOUT_S)
        if isinstance(reply, ErrorReply):
            raise exceptions.RuntimeEnvSetupError(
                f"Failed to upload {package.what} to the cluster: {reply.message}"
            )
        log.info("Successfully pushed file package %s of %s (%d bytes)", *about)
