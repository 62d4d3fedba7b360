#!/usr/bin/env python3
"""Writes docs/settings.md from the tables of settings in the code. `--check` writes nothing: it fails when the page is
out of date, or when a module reads the environment past the tables.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "settings.md"
PACKAGES = ("runtime", "clusterctl", "autoscaler")
TABLES = ("runtime._system.settings", "clusterctl.settings")
READERS = ("runtime/_system/variables.py", "runtime/_system/settings.py")

EXCEPTIONS = {
    "runtime/_executor/devices.py::Devices.bind": "sets what libraries of the user read, and puts it back",
    "runtime/_executor/thread_limit.py::begin": "sets what libraries of the user read",
    "runtime/_executor/thread_limit.py::follow_lease": "sets what libraries of the user read",
    "runtime/_process/preloading.py::_without_threads": "sets what libraries of the user read",
    "runtime/_node/environments/builder.py::Builder._build": "${NAME} in the user's env_vars; PATH of a worker",
    "runtime/_node/environments/conda.py::surroundings": "the environment of an installer",
    "runtime/_node/environments/container.py::run_command": "the environment of a worker in a container",
    "runtime/_node/environments/container.py::look": "the environment of podman",
    "runtime/_node/environments/container.py::_succeeds": "the environment of podman",
    "runtime/_node/environments/plugins.py::_load": "PYTHONPATH, while code of the user is imported",
    "runtime/_node/environments/venv.py::build": "the environment of an installer",
    "runtime/_node/zygote_spawn.py::daemon_environment": "the environment of a daemon",
    "runtime/_process/zygote.py::_apply_environment": "sets the user's env_vars in a worker",
    "runtime/_remote_driver/__init__.py::": "sets what gRPC reads",
    "runtime/serve/_ingress/grpc_server.py::GrpcServer.__init__": "sets what gRPC reads",
    "runtime/compat/_common/utils.py::env_integer": "reads a variable that its caller names, as Ray's helper does",
    "runtime/compat/_common/utils.py::env_float": "reads a variable that its caller names, as Ray's helper does",
    "runtime/compat/_common/utils.py::env_bool": "reads a variable that its caller names, as Ray's helper does",
    "runtime/compat/ray.py::install": "PYTHONPATH of the Pythons that the program starts",
    "runtime/rllib/algorithms/algorithm.py::Algorithm.setup": "sets what the user gives to python_environment()",
    "runtime/rllib/core/learner/learner_actor.py::LearnerActor._join": "sets what Gloo reads",
    "runtime/tune/logger/comet.py::CometLoggerCallback.log_trial_start": "sets what Comet reads",
    "clusterctl/commands/connect.py::connect": "the environment of a command",
    "clusterctl/startup/boot_entry.py::install": "the environment of the head that a reboot starts",
    "clusterctl/startup/boot_entry.py::_run": "the environment of crontab",
    "clusterctl/head/daemons.py::spill_to": "sets what the daemons read that it starts",
    "clusterctl/head/server.py::Head._serve": "the environment of jobs",
    "runtime/train/tensorflow/_backend.py::TensorflowBackend.join": "sets what TensorFlow reads",
    "runtime/train/tensorflow/_backend.py::TensorflowBackend.leave": "takes back what TensorFlow reads",
    "runtime/train/torch/_backend.py::TorchBackend.join": "sets what programs of torch read",
    "runtime/train/torch/_backend.py::_show_gpus_to_neighbours": "sets what programs of torch read",
    "runtime/train/torch/_reproducibility.py::enable_reproducibility": "sets what CUDA reads",
    "runtime/train/v2/jax/_backend.py::JaxBackend.join": "sets what JAX reads",
    "clusterctl/settings.py::take_join_token": "takes a secret out of what daemons inherit",
    "clusterctl/home.py::Home.find": "HOME, beside the setting for the state folder",
    "clusterctl/jobs/placed.py::Entrypoint.run": "the environment of a job's command",
    "clusterctl/jobs/placed.py::main": "takes a message of the head out of the environment of the job",
    "clusterctl/startup/lease_guard.py::_run": "PATH, in a program without our packages",
    "clusterctl/providers/local/machine.py::LocalMachine.environment": "the environment of a machine's processes",
    "clusterctl/providers/ssh/claim.py::look_here": "the environment of a shell",
    "clusterctl/providers/ssh/own_end.py::give_back_own": "the environment of a shell",
    "clusterctl/spec/load.py::load_text": "${NAME} in the user's cluster spec",
}
"""Functions outside of the tables that use the whole environment, or a variable that is not ours, and why."""

INTRODUCTION = """\
# Settings

Made by `scripts/gen_settings.py` from `runtime/_system/settings.py` and `clusterctl/settings.py`; do not edit.

All environment variables that the engine and `clusterctl` read. An empty variable counts as unset. A wrong value is an
error that names the variable: `init` and the start of a node raise it, a worker logs it and uses the default.
"""


def sections() -> Iterator[str]:
    """One table of the page for each section of the tables in the code."""
    for module in TABLES:
        table: Any = importlib.import_module(module)
        for section in table.SECTIONS:
            rows = [
                "| " + " | ".join(_cells(setting)).replace("\n", " ") + " |" for setting in section.settings
            ]
            head = ["| variable | value | default | effect |", "|---|---|---|---|"]
            yield "\n".join([f"## {section.title}", "", section.introduction, "", *head, *rows, ""])


def _cells(setting: Any) -> tuple[str, str, str, str]:
    names = f"`{setting.name}`"
    if setting.aliases:
        names += ", or else " + ", ".join(f"`{name}`" for name in setting.aliases)
    return names, setting.kind, setting.shown_default or "none", setting.effect.replace("|", "\\|")


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *sections()])


def reads_past_the_tables(sources: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Functions that use os.environ or getenv, as "path::function", each with the line of the last use.

    Args:
        sources: paths and texts of modules.
    """
    found: dict[str, int] = {}
    for path, text in sources:
        if path not in READERS and ("environ" in text or "getenv" in text):
            _collect(ast.parse(text), path, (), found)
    return found


def _collect(node: ast.AST, path: str, scope: tuple[str, ...], found: dict[str, int]) -> None:
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*scope, child.name)
        elif (
            isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name) and child.value.id == "os"
        ):
            if child.attr in ("environ", "environb", "getenv", "getenvb"):
                found[f"{path}::{'.'.join(scope)}"] = child.lineno
        elif (
            isinstance(child, ast.ImportFrom)
            and child.module == "os"
            and {name.name for name in child.names} & {"environ", "environb", "getenv", "getenvb"}
        ):
            found[f"{path}::{'.'.join(scope)}"] = child.lineno
        _collect(child, path, inner, found)


def sources() -> Iterator[tuple[str, str]]:
    """The modules of the packages: their paths and texts."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def problems() -> list[str]:
    """What is wrong, a line each."""
    found = reads_past_the_tables(sources())
    lines = [
        f"{place.partition('::')[0]}:{line}: reads the environment; declare a setting in {' or '.join(TABLES)}, or "
        f"name {place!r} in EXCEPTIONS of scripts/gen_settings.py"
        for place, line in found.items()
        if place not in EXCEPTIONS
    ]
    lines += [
        f"EXCEPTIONS of scripts/gen_settings.py: nothing in {name}" for name in EXCEPTIONS.keys() - found
    ]
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        lines.append(f"{PAGE} is out of date; run scripts/gen_settings.py")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when something is wrong")
    if parser.parse_args().check:
        lines = problems()
        sys.stderr.writelines(f"{line}\n" for line in lines)
        return 1 if lines else 0
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
