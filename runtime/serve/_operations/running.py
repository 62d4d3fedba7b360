"""`serve run`: an application of this program, deployed again when its code changes."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from runtime import cloudpickle
from runtime.serve import api
from runtime.serve._controller import connection
from runtime.serve._controller.building import application
from runtime.serve._operations.client import ServeError
from runtime.serve._operations.rest import deploy
from runtime.serve.config import imported
from runtime.serve.schema import ServeDeploySchema

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""How often files are looked at. There is no library that tells of changes."""


class Program:
    """An application at an import path.

    Args:
        path: of an application, or of a function that returns one.
        arguments: of that function.
    """

    def __init__(self, path: str, arguments: Mapping[str, str], name: str, route_prefix: str) -> None:
        self._path = path
        self._arguments = arguments
        self._name = name
        self._route_prefix = route_prefix

    def run(self, blocking: bool) -> None:
        """Deploys it; with `blocking` until it is interrupted, and what is served ends then."""
        try:
            self._deploy()
        except BaseException:
            if blocking:
                api.shutdown()
            raise
        typer.echo(f"Application {self._name} is running.", err=True)
        if blocking:
            api.wait_for_interrupt()

    def follow(self, folder: str) -> None:
        """Deploys it whenever a Python file below `folder` has changed, until it is interrupted."""
        try:
            while True:
                seen = snapshot(folder)
                try:
                    modules = modules_below(folder)
                    forget(modules)
                    self._deploy(folder)
                    typer.echo(f"Application {self._name} is running.", err=True)
                except Exception:  # the next change may mend it; what ran before goes on
                    traceback.print_exc()
                    typer.echo("The application could not be deployed.", err=True)
                while snapshot(folder) == seen:
                    time.sleep(LOOK_S)
        except KeyboardInterrupt:
            api.shutdown()

    def _deploy(self, by_value: str = "") -> None:
        target = application(found_at(self._path), self._arguments, self._path)
        sent = modules_below(by_value) if by_value else {}
        for module in sent.values():
            cloudpickle.register_pickle_by_value(module)  # so that a change of any file changes the version
        try:
            api.run(target, name=self._name, route_prefix=self._route_prefix)
        finally:
            for module in sent.values():
                cloudpickle.unregister_pickle_by_value(module)


def found_at(path: str) -> Any:
    """What an import path names.

    Raises:
        ServeError: there is no such module or name. An import that fails inside the module is raised as it is: its
            traceback says where.
    """
    try:
        return imported(path)
    except ImportError as error:
        module = path.rpartition(":" if ":" in path else ".")[0]
        if error.name is None or f"{module}.".startswith(f"{error.name}."):
            raise ServeError(
                f"{str(error).rstrip('.')}. The application {path!r} is looked for in --app-dir, here by default."
            ) from None
        raise


def run_config(config: ServeDeploySchema, blocking: bool) -> None:
    """Deploys a configuration; with `blocking` until it is interrupted, and what is served ends then."""
    deploy(config)
    names = [each.name for each in config.applications or ()]
    connection.ask(connection.running().wait_for.remote(names, ["RUNNING", "DEPLOY_FAILED"]), names)
    for name, each in api.status().applications.items():
        if name in names:
            typer.echo(f"Application {name}: {each.status.value} {each.message}".rstrip(), err=True)
    if blocking:
        api.wait_for_interrupt()


def snapshot(folder: str) -> dict[str, int]:
    """When each Python file below a folder was changed, in ns; hidden folders are left out."""
    found = {}
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(base, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except OSError:
                    continue  # removed meanwhile
    return found


def modules_below(folder: str) -> dict[str, ModuleType]:
    """The imported modules whose files are below a folder, installed packages left out."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not file or name.partition(".")[0] in ("runtime", "ray"):
            continue
        path = Path(file).absolute()
        if path.is_relative_to(folder) and "site-packages" not in path.parts:
            found[name] = module
    return found


def forget(modules: Mapping[str, Any]) -> None:
    """Their next import reads the files again."""
    for name in modules:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
