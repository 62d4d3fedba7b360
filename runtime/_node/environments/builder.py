"""Builds what environments are made of. It needs much of the standard library, and comes with a node's first job."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from runtime._clients.control import ControlClient
from runtime._core import environments
from runtime._core.uri_cache import UriCache
from runtime._node.zygote_spawn import daemon_environment
from runtime._packages import fetch
from runtime._system import settings
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import KvGet

from . import conda, container, venv
from .command import CommandFailed, run
from .place import Container, Interpreter, Part, Preload, WorkerPlace

if TYPE_CHECKING:
    from .plugins import Plugins

log = logging.getLogger(__name__)
FAILURE_KEPT_S = 10.0
"""How long a failed installation is not retried, so that tasks that wait together share its failure."""
_DEFAULT_TIMEOUT_S = 600.0
_FETCH_TIMEOUT_S = 120.0
_GIB = 2**30
_UNSUPPORTED = ("java_jars", "_nsight", "_rocprof_sys")
_OWN_FIELDS = frozenset(
    (
        *_UNSUPPORTED,
        "py_modules",
        "py_executable",
        "working_dir",
        "pip",
        "uv",
        "conda",
        "env_vars",
        "excludes",
        "config",
    )
) | {"container", "image_uri", "worker_process_setup_hook", "preload"}
_AT_START = ("PYTHON", "CONDA_", "LD_", "OMP_", "MKL_", "OPENBLAS_", "MALLOC_", "NUMEXPR_")
"""Variables with these beginnings are read when Python or a library starts: a fork would be too late for them."""


class _Building(msgspec.Struct, eq=False):
    """A part that is being built, and how many environments wait for it: it is given up with the last."""

    task: asyncio.Task[None]
    waiting: int = 0


class Builder:
    """The parts of one node's environments: built once, kept by content, counted.

    Args:
        folder: for all files; this object's alone.
        control: where packages are.
        shared: folders of the node that workers in containers need.
    """

    def __init__(self, folder: str, control: ControlClient, shared: Sequence[str] = ()) -> None:
        self._folder = Path(folder)
        self._shared = shared
        self._control = control
        self._building: dict[Part, _Building] = {}
        self._failed: dict[Part, tuple[float, str]] = {}
        self._deleters: dict[Part, Callable[[], None]] = {}
        self._plugins: Plugins | None = None
        self._deleting: set[asyncio.Task[None]] = set()
        self._caches = {kind: _cache(kind) for kind in ("WORKING_DIR", "PY_MODULES", "PIP", "CONDA", "IMAGE")}

    async def build(self, parts: list[Part], env: Mapping[str, Any], job: Mapping[str, Any]) -> WorkerPlace:
        """Makes an environment ready, and notes in `parts` what it holds.

        Args:
            job: the configuration of its job.

        Raises:
            CallError: RUNTIME_ENV, with the cause.
        """
        limit = (env.get("config") or {}).get("setup_timeout_seconds", _DEFAULT_TIMEOUT_S)
        try:
            async with asyncio.timeout(None if limit == -1 else limit):
                return await self._build(parts, env, job)
        except TimeoutError:
            message = f"it was not ready after setup_timeout_seconds={limit}; set a longer time in its config"
        except (CommandFailed, ValueError) as error:
            message = str(error)
        except (OSError, KeyError, TypeError) as error:
            message = f"{type(error).__name__}: {error}"
        raise CallError(ErrorKind.RUNTIME_ENV, message)

    def release(self, parts: list[Part]) -> None:
        """An environment does not need these any more. They stay while there is room."""
        now = asyncio.get_running_loop().time()
        for kind, name in parts:
            self._caches[kind].release(name, now)
        self._evict()

    async def close(self) -> None:
        """Ends what is being built; returns when its programs are gone."""
        tasks = [building.task for building in self._building.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*self._deleting, return_exceptions=True)
        if self._plugins is not None:
            await self._plugins.close()

    # -- inside

    async def _build(self, parts: list[Part], env: Mapping[str, Any], job: Mapping[str, Any]) -> WorkerPlace:
        for name in _UNSUPPORTED:
            if env.get(name):
                raise ValueError(
                    f"runtime_env['{name}']={env[name]!r} is not supported: use pip or uv for packages, and "
                    "install what else is needed on the nodes"
                )
        chosen = container.chosen(env, self._shared)
        path: list[str] = []
        for uri in env.get("py_modules") or []:
            path.append(await self._unpacked(parts, "PY_MODULES", uri))
        cwd = ""
        if env.get("working_dir"):
            cwd = await self._unpacked(parts, "WORKING_DIR", env["working_dir"])
            path.append(cwd)
        elif chosen is None:
            cwd = next(iter(_existing([job.get("cwd") or ""])), "")
        if chosen is not None:
            return await self._in_container(parts, env, chosen, cwd, path, job)
        variables = environments.expand(env.get("env_vars") or {}, os.environ)
        working_dir = cwd if env.get("working_dir") else ""
        command, at = await self._command(parts, env, working_dir, variables)
        if env.get("pip") or env.get("uv"):
            binaries = os.path.dirname(command[0])
            variables["VIRTUAL_ENV"] = os.path.dirname(binaries)
            search = variables.get("PATH", os.environ.get("PATH", os.defpath))
            variables["PATH"] = f"{binaries}{os.pathsep}{search}"
        command, variables = await self._changed_by_plugins(parts, env, command, variables)
        content = tuple(path)
        _lead_to(path, variables, os.environ)
        path += _existing(job.get("sys_path") or [])
        hook = env.get("worker_process_setup_hook") or ""
        preload = _preload(env, content, variables, working_dir, job)
        interpreter = Interpreter(tuple(command), _at_start(variables), at, preload=preload)
        return WorkerPlace(cwd, path, variables, interpreter, hook)

    async def _in_container(
        self,
        parts: list[Part],
        env: Mapping[str, Any],
        chosen: Container,
        cwd: str,
        path: list[str],
        job: Mapping[str, Any],
    ) -> WorkerPlace:
        """The place in an image, of which the job's own folders on this node are no part."""
        if settings.PLUGINS.get() and (others := env.keys() - _OWN_FIELDS):
            raise ValueError(f"plugins do not change containers: leave {', '.join(sorted(others))} out")
        digest = hashlib.sha256(msgspec.json.encode(chosen)).hexdigest()
        folder = self._folder / "images" / digest[:32]
        await self._folder_part(parts, ("IMAGE", digest), folder, lambda: container.look(chosen, folder))
        image = container.found(folder)
        variables = environments.expand(env.get("env_vars") or {}, image.variables)
        content = tuple(path)
        _lead_to(path, variables, image.variables)
        preload = _preload(env, content, variables, cwd, job)
        interpreter = Interpreter((image.python,), _at_start(variables), container=chosen, preload=preload)
        return WorkerPlace(cwd, path, variables, interpreter)

    async def _changed_by_plugins(
        self, parts: list[Part], env: Mapping[str, Any], command: list[str], variables: dict[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """The command that starts Python and the variables, after the plugins of the environment's fields."""
        if not settings.PLUGINS.get() or not env.keys() - _OWN_FIELDS:
            return command, variables
        from runtime._private.runtime_env.context import RuntimeEnvContext  # few nodes have plugins

        from .plugins import Plugins

        if self._plugins is None:
            self._plugins = Plugins(settings.PLUGINS.get())
            for name in self._plugins.names:
                self._caches[name] = _cache(name.upper())

        async def keep(
            name: str, uri: str, make: Callable[[], Awaitable[int]], delete: Callable[[], None]
        ) -> None:
            await self._part(parts, (name, uri), make, delete)

        python = shlex.join(command or [sys.executable])
        context = RuntimeEnvContext(env_vars=dict(variables), py_executable=python)
        await self._plugins.apply(env, context, keep)
        if context.py_executable != python:
            command = shlex.split(context.py_executable)
        if context.command_prefix:
            script = f'{" ".join(context.command_prefix)} exec "$@"'
            command = ["bash", "-c", script, "bash", *(command or [sys.executable])]
        return command, context.env_vars

    async def _command(
        self, parts: list[Part], env: Mapping[str, Any], working_dir: str, variables: dict[str, str]
    ) -> tuple[list[str], str]:
        """What starts the Python for the workers, [] for the node's own; and where it is run."""
        tool = next((name for name in environments.INSTALLERS if env.get(name)), "")
        if env.get("py_executable"):
            if tool:
                raise ValueError(f"runtime_env sets both py_executable and {tool}; choose one")
            return shlex.split(env["py_executable"]), working_dir
        if not tool:
            return [], ""
        if tool == "conda":
            return await self._conda(parts, env["conda"], working_dir, variables), ""
        config = env[tool] if isinstance(env[tool], dict) else {"packages": env[tool]}
        spec = venv.VenvSpec(tool, config, working_dir)
        folder = self._folder / "venvs" / spec.digest[:32]
        await self._folder_part(
            parts, ("PIP", spec.digest), folder, lambda: venv.build(spec, folder, variables)
        )
        return [venv.python_of(folder)], ""

    async def _conda(
        self, parts: list[Part], given: Any, working_dir: str, variables: dict[str, str]
    ) -> list[str]:
        """The command of a conda environment's Python. Its variables are added to `variables`."""
        search = variables.get("PATH") or conda.surroundings().get("PATH", os.defpath)
        if isinstance(given, str):
            prefix = await conda.find(given)
            await conda.check(prefix)
        else:
            spec = conda.CondaSpec(given, working_dir)
            folder = self._folder / "conda" / spec.digest[:32]

            async def build() -> None:
                await conda.build(spec, folder, variables)
                await conda.check(str(folder))

            await self._folder_part(parts, ("CONDA", spec.digest), folder, build)
            prefix = str(folder)
        variables.update(conda.variables_of(prefix, search))
        return conda.command_of(prefix)

    async def _unpacked(self, parts: list[Part], kind: str, uri: str) -> str:
        name = uri
        if uri.startswith("file://"):  # the only URIs whose content may change between two jobs
            status = _status(uri)
            name = f"{uri}#{status.st_mtime_ns}-{status.st_size}"
        package = environments.parse_package_uri(uri)
        label = package[1] if package is not None else hashlib.sha256(name.encode()).hexdigest()
        folder = self._folder / kind.lower() / f"_ray_pkg_{label[:32]}"
        await self._folder_part(parts, (kind, name), folder, lambda: self._fetch(uri, package, folder))
        return str(folder)

    async def _folder_part(
        self, parts: list[Part], part: Part, folder: Path, build: Callable[[], Awaitable[None]]
    ) -> None:
        """`_part` for one that `build` makes in a folder."""

        async def make() -> int:
            try:
                folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                await build()
                return await asyncio.to_thread(_size_of, folder)
            except BaseException:
                self._discard(folder)
                raise

        await self._part(parts, part, make, lambda: self._discard(folder))

    async def _part(
        self, parts: list[Part], part: Part, make: Callable[[], Awaitable[int]], delete: Callable[[], None]
    ) -> None:
        """Makes a part unless it is there, together with others who need it, and notes that `parts` hold it.

        Args:
            make: returns its size in bytes.
            delete: called when nobody has needed it for long.
        """
        loop = asyncio.get_running_loop()
        kind, name = part
        cache = self._caches[kind]
        while name not in cache:
            failed = self._failed.get(part)
            if failed is not None and loop.time() < failed[0]:
                raise CommandFailed(failed[1])
            building = self._building.get(part)
            if building is None:
                task = loop.create_task(self._build_part(part, make, delete))
                building = self._building[part] = _Building(task)
            building.waiting += 1
            try:
                await asyncio.shield(building.task)
            finally:
                building.waiting -= 1
                if not building.waiting and not building.task.done():
                    building.task.cancel()
                    await asyncio.wait([building.task])
        cache.use(name, loop.time())
        parts.append(part)
        self._evict()

    async def _build_part(
        self, part: Part, make: Callable[[], Awaitable[int]], delete: Callable[[], None]
    ) -> None:
        kind, name = part
        loop = asyncio.get_running_loop()
        try:
            self._failed.pop(part, None)
            size = await make()
            self._caches[kind].add(name, size, loop.time())
            self._deleters[part] = delete
        except CommandFailed as error:
            self._failed[part] = (loop.time() + FAILURE_KEPT_S, str(error))
            raise
        finally:
            del self._building[part]

    async def _fetch(self, uri: str, package: tuple[str, str] | None, folder: Path) -> None:
        file = folder.with_name(f"{folder.name}.download")
        try:
            if package is None:
                command = [sys.executable, "-P", "-m", "runtime._packages.fetch", uri, str(file)]
                try:
                    await run(command, "/", daemon_environment())
                except CommandFailed as error:
                    raise ValueError(f"Failed to download {uri}: {error.output}") from error
            else:
                await self._download(uri, *package, file)
            await asyncio.to_thread(_unpack, uri, file, folder, package is None)
        finally:
            file.unlink(missing_ok=True)

    async def _download(self, uri: str, key: str, digest: str, file: Path) -> None:
        try:
            reply = await self._control.call(
                KvGet(environments.PACKAGES, key.encode()), timeout_s=_FETCH_TIMEOUT_S
            )
        except CallError as error:
            raise ValueError(f"Failed to download {uri}: {error}") from error
        data = reply.value
        if data is None:
            raise ValueError(
                f"Failed to download {uri}: the control store has no such package; start the job again"
            )
        if await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest()) != digest:
            raise ValueError(f"Failed to download {uri}: its content does not match its digest")
        await asyncio.to_thread(file.write_bytes, data)

    def _evict(self) -> None:
        for kind, cache in self._caches.items():
            for name in cache.evict():
                log.info("deleting %s: the cache is full, and nobody uses it", name)
                self._deleters.pop((kind, name))()

    def _discard(self, folder: Path) -> None:
        """Takes a folder out of the way at once, and deletes it in a thread."""
        try:
            trash = folder.rename(folder.with_name(f"{folder.name}.{os.urandom(4).hex()}.old"))
        except FileNotFoundError:
            return
        task = asyncio.get_running_loop().create_task(_delete(trash))
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)


async def _delete(folder: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _unpack(uri: str, file: Path, folder: Path, is_remote: bool) -> None:
    from runtime._packages import archive  # formats that most sessions never see

    name = uri.rpartition("/")[2]

    def build(draft: Path) -> None:
        if name.endswith(".whl"):
            archive.extract_wheel(str(file), str(draft))
        else:
            archive.extract(str(file), name, str(draft), strip_single_folder=is_remote)

    archive.in_place(folder, build)


def _status(uri: str) -> os.stat_result:
    try:
        return os.stat(fetch.path_of(uri))
    except OSError as error:
        raise ValueError(f"Failed to download {uri}: {error}") from error


def _cache(kind: str) -> UriCache:
    return UriCache(int(settings.cache_size_gb(kind).get() * _GIB))


def _at_start(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted((n, v) for n, v in variables.items() if n.startswith(_AT_START) and n != "PYTHONPATH")
    )


def _preload(
    env: Mapping[str, Any],
    path: tuple[str, ...],
    variables: Mapping[str, str],
    cwd: str,
    job: Mapping[str, Any],
) -> Preload | None:
    modules = tuple(env.get("preload") or ())
    if not modules:
        return None
    return Preload(modules, path, tuple(sorted(variables.items())), cwd, bool(job.get("ray_alias")))


def _lead_to(path: list[str], variables: dict[str, str], outer: Mapping[str, str]) -> None:
    """Adds the folders of PYTHONPATH to `path`, and all of it to PYTHONPATH, for programs that the worker starts."""
    path += filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    if path:
        inherited = outer.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([*path, *([inherited] if inherited else [])])


def _existing(folders: list[str]) -> list[str]:
    return [folder for folder in folders if os.path.isdir(folder)]


def _size_of(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*"))
