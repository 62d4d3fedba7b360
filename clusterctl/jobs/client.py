"""Submits jobs and follows their output, through the head's API."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from clusterctl.api_client import ApiClient
from clusterctl.errors import Interrupted, NotFound, UsageProblem
from clusterctl.output import size
from runtime._core.environments import package_key, scheme_of

from . import secrets
from .package import Entry, Package, manifest, pack
from .records import JobRecord

_WAIT_S = 10.0
_LOGS_S = 60.0
_POLL_S = 0.5
_OTHERS = "Other commands: clusterctl job submit --working-dir . -- COMMAND..."
_SHOWN = 5
"""How many left-out paths a line names."""
_PATIENCE_S = 5.0
"""How long a question is repeated when the head does not answer, before it is said so."""


def prepare(
    script: str,
    arguments: Sequence[str],
    working_dir: str | None,
    ray_compat: bool = False,
    excludes: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[Package, str]:
    """Packages the folder of a script; returns the package and the command line that runs the script in it.

    Args:
        script: a Python program.
        arguments: its arguments.
        working_dir: the folder to package; default: the script's own.
        ray_compat: the script says `import ray`.
        excludes: further patterns in .gitignore's language; `!PATTERN` lets a likely secret travel.
        tell: told what will travel, and what is left out as a secret, before anything is read.

    Raises:
        NotFound: there is no such script.
        UsageProblem: the folder is the home folder or too big, or the script lies outside of it.
    """
    if not os.path.isfile(script):
        what = f"{script} is a folder" if os.path.isdir(script) else f"there is no file {script}"
        raise NotFound(what, f"Name a Python program, e.g. clusterctl submit job.py. {_OTHERS}")
    if script.endswith((".sh", ".bash")):
        raise UsageProblem(f"{script} is no Python program", _OTHERS)
    root = os.path.abspath(working_dir or os.path.dirname(script) or ".")
    if not os.path.isdir(root):
        raise NotFound(f"there is no folder {root}")
    inside = os.path.relpath(os.path.abspath(script), root)
    if inside.startswith(".."):
        raise UsageProblem(f"{script} is not inside {root}", "Choose a --working-dir that holds the script.")
    entries, left_out = _travelling(root, excludes)
    if inside not in {entry.path for entry in entries}:
        raise UsageProblem(
            f"{script} would not travel: a .gitignore leaves it out (or it is in .git, venv or a cache)",
            "Move it, or change the .gitignore.",
        )
    _announce(root, entries, left_out, tell)
    runner = ["-m", "runtime.compat.ray"] if ray_compat else []
    return pack(root, entries), shlex.join(["python", "-u", *runner, inside, *arguments])


def local_folder(env: Mapping[str, Any], tell: Callable[[str], None]) -> Package | None:
    """Packages the working directory of a checked runtime environment; None if there is none, or if it is an archive or
    a URI.

    Raises:
        UsageProblem: it is the home folder, or too big.
    """
    folder = env.get("working_dir")
    if not folder or scheme_of(folder) or os.path.isfile(folder):
        return None
    root = os.path.abspath(folder)
    entries, left_out = _travelling(root, env.get("excludes") or ())
    _announce(root, entries, left_out, tell)
    return pack(root, entries)


def _travelling(root: str, excludes: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """The files of a folder that travel, and the likely secrets that do not."""
    secrets.refuse_home(root)
    return secrets.without_secrets(manifest(root, excludes), excludes)


def _announce(
    root: str, entries: Sequence[Entry], left_out: Sequence[str], tell: Callable[[str], None]
) -> None:
    tell(_travels(root, entries) if entries else f"packaging {root}: no files")
    if left_out:
        tell(_stays(left_out))


def _travels(root: str, entries: Sequence[Entry]) -> str:
    """One line: how much of the folder travels, and what is largest."""
    largest = max(entries, key=lambda entry: entry.size_bytes)
    files = "1 file" if len(entries) == 1 else f"{len(entries)} files"
    total = sum(entry.size_bytes for entry in entries)
    return f"packaging {root}: {files}, {size(total)}; largest {largest.path} ({size(largest.size_bytes)})"


def _stays(paths: Sequence[str]) -> str:
    """One line: which likely secrets are left out, and how to send one all the same."""
    shown = ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
    return (
        f"left out as likely secrets: {shown}. To send one, name it in the runtime environment: "
        f"--runtime-env-json '{json.dumps({'excludes': [f'!{os.path.basename(paths[0])}']})}'"
    )


def upload(api: ApiClient, package: Package) -> bool:
    """Uploads a package unless the cluster has it; returns whether it travelled."""
    return upload_named(api, package_key(package.digest), package.data)


def upload_named(api: ApiClient, name: str, data: bytes) -> bool:
    """Uploads a package under its name unless the cluster has it; returns whether it travelled."""
    try:
        api.request("GET", f"/api/packages/gcs/{name}", patience_s=_PATIENCE_S)
    except NotFound:
        api.put(f"/api/packages/gcs/{name}", data)
        return True
    return False


def submit(
    api: ApiClient,
    entrypoint: str,
    runtime_env: Mapping[str, Any],
    submission_id: str | None,
    overridable: Sequence[str] = (),
    wants: Mapping[str, Any] | None = None,
) -> str:
    """Submits; returns the job's id. `wants`: the fields of `JobRequest` that begin with `entrypoint_`."""
    asked: dict[str, Any] = {
        "entrypoint": entrypoint,
        "submission_id": submission_id,
        "runtime_env": dict(runtime_env),
        **(wants or {}),
    }
    if overridable:  # Ray itself knows no such field
        asked["overridable"] = list(overridable)
    answer = api.post("/api/jobs/", asked)
    return str(answer["submission_id"])


def get(api: ApiClient, name: str) -> JobRecord:
    """A job's record."""
    answer = api.request("GET", f"/api/jobs/{name}", patience_s=_PATIENCE_S)
    given = {key: value for key, value in answer.json().items() if value is not None}
    return msgspec.convert(given, JobRecord)


def follow(api: ApiClient, name: str, write: Callable[[bytes], None], offset: int = 0) -> None:
    """Passes a job's output on from byte `offset`, as it comes, to its end; lost connections cost nothing."""
    while True:
        answer = api.request(
            "GET",
            f"/api/jobs/{name}/logs",
            query={"offset": offset, "wait_s": _WAIT_S},
            timeout_s=_WAIT_S + 5.0,
            patience_s=api.patience_s,
        )
        if "x-next-offset" not in answer.headers:
            _follow_rays(api, name, write, offset)
            return
        if answer.body:
            write(answer.body)
        offset = int(answer.headers["x-next-offset"])
        if answer.headers["x-job-ended"] == "1":
            return


def _follow_rays(api: ApiClient, name: str, write: Callable[[bytes], None], offset: int) -> None:
    """`follow`, where Ray itself answers: it gives the whole output each time, and does not wait for more."""
    while True:
        has_ended = get(api, name).status.is_final
        answer = api.request("GET", f"/api/jobs/{name}/logs", timeout_s=_LOGS_S, patience_s=api.patience_s)
        output = str(answer.json()["logs"]).encode()
        if len(output) > offset:
            write(output[offset:])
            offset = len(output)
        if has_ended:
            return
        time.sleep(_POLL_S)


def follow_to_end(api: ApiClient, name: str, write: Callable[[bytes], None]) -> JobRecord:
    """Follows a job from its start; returns how it ended.

    Raises:
        Interrupted: Ctrl-C; the job runs on, and the message says how to go on.
    """
    try:
        follow(api, name, write)
    except KeyboardInterrupt:
        raise Interrupted(
            f"\nstopped watching; job {name} runs on.\n"
            f"  watch it again: clusterctl job logs -f {name}    stop it: clusterctl job stop {name}"
        ) from None
    return get(api, name)
