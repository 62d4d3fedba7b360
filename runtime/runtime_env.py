"""Runtime environments: the files, variables and packages that a job, a task or an actor needs.

A `RuntimeEnv` is accepted wherever a dict is (`init`, `@remote`, `.options`). It checks its fields on construction.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtime._core import environments
from runtime._system import settings

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]

log = logging.getLogger("runtime")


class RuntimeEnvConfig(dict[str, Any]):
    """How an environment is set up.

    Args:
        setup_timeout_seconds: limit for the set-up; -1: no limit.
        eager_install: set the job's environment up when the driver connects, not with its first task.
        log_files: without effect.

    Raises:
        TypeError, ValueError: a value of the wrong type, or out of range.
    """

    known_fields = frozenset({"setup_timeout_seconds", "eager_install", "log_files"})

    def __init__(
        self, setup_timeout_seconds: int = 600, eager_install: bool = True, log_files: list[str] | None = None
    ) -> None:
        super().__init__()
        if isinstance(setup_timeout_seconds, bool) or not isinstance(setup_timeout_seconds, int):
            raise TypeError(f"setup_timeout_seconds must be of type int, got: {type(setup_timeout_seconds)}")
        if setup_timeout_seconds <= 0 and setup_timeout_seconds != -1:
            raise ValueError(
                "setup_timeout_seconds must be greater than zero or equals to -1, "
                f"got: {setup_timeout_seconds}"
            )
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install must be a boolean, got {type(eager_install)}")
        files = [] if log_files is None else log_files
        if not isinstance(files, list):
            raise TypeError(f"log_files must be a list of strings or None, got {type(files)}")
        if not all(isinstance(name, str) for name in files):
            raise TypeError("log_files must be a list of strings: each item in it must be a string")
        self.update(setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=files)

    @staticmethod
    def default_config() -> RuntimeEnvConfig:
        """The default configuration."""
        return RuntimeEnvConfig()

    @staticmethod
    def parse_and_validate_runtime_env_config(config: Any) -> RuntimeEnvConfig:
        """A checked config made of a dict; unknown entries are ignored with a warning.

        Raises:
            TypeError, ValueError: see the class.
        """
        if isinstance(config, RuntimeEnvConfig):
            return config
        if not isinstance(config, Mapping):
            raise TypeError(
                f"runtime_env['config'] must be of type dict or RuntimeEnvConfig, got: {type(config)}"
            )
        unknown = config.keys() - RuntimeEnvConfig.known_fields
        if unknown:
            log.warning("runtime_env['config'] has unknown entries, which are ignored: %s", sorted(unknown))
        return RuntimeEnvConfig(**{name: value for name, value in config.items() if name not in unknown})

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a plain dict."""
        return dict(self)


class RuntimeEnv(dict[str, Any]):
    """An environment. All fields are optional.

    Args:
        working_dir: the workers' current directory and first entry of `sys.path`: a local directory or archive (for a
            job, in `init`), or the URI of an archive.
        py_modules: entries for `sys.path`: local directories, files, wheels and archives (for a job), or URIs.
        env_vars: environment variables; `${NAME}` or `$NAME` in a value is replaced by the
            worker's variable NAME.
        pip: packages to install: a list, a requirements file, or a dict of `packages`, `pip_check`, `pip_version`,
            `pip_install_options`.
        uv: the same through uv: a list, a file, or a dict of `packages`, `uv_check`, `uv_version`,
            `uv_pip_install_options`.
        excludes: patterns in the syntax of .gitignore for files not to upload.
        py_executable: the command that runs Python.
        worker_process_setup_hook: called in each worker before its first task: a function (for a job), or its path
            "package.module.function".
        preload: names of modules that each worker has imported before its first task. Where that is possible, a node
            imports them once and forks the workers from there.
        config: a `RuntimeEnvConfig`, or a dict of its arguments.
        image_uri: a container image in which workers run, with podman. Only `env_vars`, `preload` and `config` may be
            beside it.
        container: the same with options for podman: `image`, `run_options` (a list).
        conda: the name (or the absolute path) of an environment on the nodes; or a description of one: a dict with the
            content of an environment.yml, or the path of such a file.
        java_jars: not supported; starting a worker fails.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: a file is missing, a URI is invalid, or two fields exclude each other.
    """

    known_fields = frozenset(
        "py_modules py_executable java_jars working_dir conda pip uv container excludes env_vars _ray_release "
        "_ray_commit _inject_current_ray config worker_process_setup_hook _nsight _rocprof_sys image_uri "
        "preload".split()
    )
    extensions_fields = frozenset({"_ray_release", "_ray_commit", "_inject_current_ray"})

    def __init__(
        self,
        *,
        py_modules: list[Any] | None = None,
        py_executable: str | None = None,
        working_dir: Any = None,
        pip: Any = None,
        conda: Any = None,
        container: dict[str, Any] | None = None,
        env_vars: dict[str, str] | None = None,
        worker_process_setup_hook: Callable[[], object] | str | None = None,
        config: RuntimeEnvConfig | dict[str, Any] | None = None,
        _validate: bool = True,
        image_uri: str | None = None,
        uv: Any = None,
        preload: list[str] | None = None,
        **others: Any,
    ) -> None:
        super().__init__()
        if "nsight" in others:
            others["_nsight"] = others.pop("nsight")
        warns = _validate and not settings.PLUGINS.get()  # whose fields only nodes know
        for name in others.keys() - self.known_fields if warns else ():
            log.warning("runtime_env field %r is not recognized, and will be ignored", name)
        given = {
            "py_modules": py_modules,
            "py_executable": py_executable,
            "working_dir": working_dir,
            "pip": pip,
            "uv": uv,
            "conda": conda,
            "container": container,
            "env_vars": env_vars,
            "worker_process_setup_hook": worker_process_setup_hook,
            "config": config,
            "image_uri": image_uri,
            "preload": preload,
            **others,
        }
        fields = {name: value for name, value in given.items() if value is not None}
        if not _validate:
            self.update(fields)
            return
        _check_exclusions(fields)
        for name, value in fields.items():
            checked = _CHECKS[name](value) if name in _CHECKS else value
            if checked is not None:
                super().__setitem__(name, checked)
        if any(name in self for name in ("image_uri", "container")):
            _check_alone(self)

    def __setitem__(self, key: str, value: Any) -> None:
        checked = _CHECKS[key](value) if key in _CHECKS and value is not None else value
        super().__setitem__(key, checked)
        _check_exclusions(self)

    def set(self, name: str, value: Any) -> None:
        """Checks and sets a field."""
        self[name] = value

    def get(self, name: str, default: Any = None, data_class: Callable[..., Any] | None = None) -> Any:
        """A field; with `data_class`, an object made of the field's entries."""
        value = super().get(name, default)
        if data_class is None or value is None:
            return value
        return data_class(**value) if isinstance(value, Mapping) else data_class(value)

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> RuntimeEnv:
        """The environment that `serialize` wrote."""
        return cls(_validate=False, **json.loads(serialized_runtime_env or "{}"))

    def serialize(self) -> str:
        """Canonical JSON: the same text for equal environments."""
        return json.dumps(self, sort_keys=True)

    def to_dict(self) -> dict[str, Any]:
        """A deep copy as a plain dict."""
        return copy.deepcopy(dict(self))

    def __reduce__(self) -> Any:
        return _restore, (dict(self),)

    # -- the fields

    def env_vars(self) -> dict[str, str]:
        """The environment variables."""
        return dict(self.get("env_vars", {}))

    def working_dir(self) -> str:
        """The working directory, or ""."""
        return str(self.get("working_dir", ""))

    def working_dir_uri(self) -> str | None:
        """The working directory, or None."""
        uri: str | None = self.get("working_dir")
        return uri

    def has_working_dir(self) -> bool:
        """Whether there is one."""
        return "working_dir" in self

    def py_modules(self) -> list[str]:
        """The modules that are put on the path."""
        return list(self.get("py_modules", []))

    def py_modules_uris(self) -> list[str]:
        """The same."""
        return self.py_modules()

    def py_executable(self) -> str | None:
        """The command that runs Python, or None."""
        command: str | None = self.get("py_executable")
        return command

    def has_pip(self) -> bool:
        """Whether pip installs something."""
        return bool(self.get("pip"))

    def pip_config(self) -> dict[str, Any]:
        """`packages` and the options of pip; {} without."""
        return copy.deepcopy(self.get("pip")) or {}

    def has_uv(self) -> bool:
        """Whether uv installs something."""
        return bool(self.get("uv"))

    def uv_config(self) -> dict[str, Any]:
        """`packages` and the options of uv; {} without."""
        return copy.deepcopy(self.get("uv")) or {}

    def has_conda(self) -> bool:
        """Whether a conda environment is named."""
        return bool(self.get("conda"))

    def conda_env_name(self) -> str | None:
        """The name of an existing conda environment, or None."""
        conda = self.get("conda")
        return conda if isinstance(conda, str) else None

    def conda_config(self) -> str | None:
        """The description of a conda environment as JSON, or None."""
        conda = self.get("conda")
        return json.dumps(conda, sort_keys=True) if isinstance(conda, dict) else None

    def has_py_container(self) -> bool:
        """Whether a container image is named."""
        return bool(self.get("container"))

    def image_uri(self) -> str | None:
        """The container image, or None."""
        uri: str | None = self.get("image_uri")
        return uri

    def java_jars(self) -> list[str]:
        """The archives of Java code."""
        return list(self.get("java_jars", []))

    def plugins(self) -> list[tuple[str, Any]]:
        """The fields of plugins."""
        return [(name, value) for name, value in self.items() if name not in self.known_fields]


def _restore(fields: dict[str, Any]) -> RuntimeEnv:
    return RuntimeEnv(_validate=False, **fields)


def of_task(env: Any) -> RuntimeEnv:
    """The checked environment of a task or actor.

    Raises:
        TypeError, ValueError: as for `RuntimeEnv`; or a field is a local path, as only files of a job are uploaded.
    """
    if not isinstance(env, dict):
        raise TypeError(
            f"The type of keyword 'runtime_env' must be {(dict, type(None))}, but received type {type(env)}"
        )
    checked = RuntimeEnv(**env)
    for uri in [*checked.py_modules(), *filter(None, [checked.working_dir_uri()])]:
        if not isinstance(uri, str) or not environments.scheme_of(uri):
            raise ValueError(
                f"{uri} is not a valid URI. A task or actor names archives by their URIs; local directories and "
                "modules are uploaded for a whole job only, with init(runtime_env=...)."
            )
    hook = checked.get("worker_process_setup_hook")
    if hook is not None and not isinstance(hook, str):
        raise TypeError(
            f"worker_process_setup_hook={hook!r} is not JSON serializable: for a task or actor give its path, "
            "'package.module.function'. init(runtime_env=...) takes functions."
        )
    return checked


# ---------------------------------------------------------------- the checks of the fields


def _check_exclusions(fields: Mapping[str, Any]) -> None:
    given = [name for name in environments.INSTALLERS if fields.get(name)]
    if len(given) > 1:
        named = "\n".join(f"specified {name} field: {fields.get(name)}" for name in environments.INSTALLERS)
        raise ValueError(
            "Each of 'pip', 'uv' and 'conda' makes an environment of its own, so that they cannot be specified at the "
            f"same time.\n{named}"
        )


def _check_alone(env: RuntimeEnv) -> None:
    name = "image_uri" if "image_uri" in env else "container"
    others = env.keys() - {name, "config", "env_vars", "preload"}
    if others:
        raise ValueError(
            f"A container decides all but environment variables and the modules to preload: '{name}' cannot be used "
            f"together with other fields of runtime_env, and there are {', '.join(sorted(others))}."
        )


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _check_env_vars(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], got {type(value)}")
    for kind, items in (("key", value.keys()), ("value", value.values())):
        for item in items:
            if not isinstance(item, str):
                raise TypeError(
                    f"runtime_env['env_vars'] must be of type Dict[str, str], but the {kind} {item} "
                    f"is of type {type(item)}"
                )
    return dict(value) or None


def _check_location(value: Any, field: str, suffixes: tuple[str, ...]) -> str:
    """A path that exists, or a URI of an archive."""
    path = str(value) if isinstance(value, Path) else value
    scheme = environments.scheme_of(path)
    if not scheme:
        if not Path(path).expanduser().exists():
            raise ValueError(f"{path} is not a valid path.")
        return str(path)
    if scheme != "gcs" and scheme not in environments.REMOTE_SCHEMES:
        raise ValueError(
            f"{path} is not a valid URI. {field} takes the schemes gcs, {', '.join(environments.REMOTE_SCHEMES)}, "
            "and local paths where a job starts, in init(runtime_env=...)."
        )
    if not path.endswith(suffixes):
        raise ValueError(f"Only {', '.join(suffixes)} files are supported for {field} URIs; got {path}.")
    return str(path)


def _check_working_dir(value: Any) -> str:
    if not isinstance(value, str | Path):
        raise TypeError(f"`working_dir` must be a string, got {type(value)}.")
    return _check_location(value, "working_dir", environments.ARCHIVE_SUFFIXES)


def _check_py_modules(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        raise TypeError(f"`py_modules` must be a list of strings, got {type(value)}.")
    for module in value:
        if not isinstance(module, str | Path):
            raise TypeError(f"`py_module` must be a string, got {type(module)}.")
    suffixes = (*environments.ARCHIVE_SUFFIXES, ".whl")
    return [_check_location(module, "py_modules", suffixes) for module in value] or None


def _check_excludes(value: Any) -> list[str] | None:
    if not _is_strings(value):
        raise TypeError(f"runtime_env['excludes'] must be of type List[str], got {type(value)}")
    return list(value) or None


def _check_preload(value: Any) -> list[str] | None:
    if not _is_strings(value):
        raise TypeError(f"runtime_env['preload'] must be of type List[str], got {value!r}")
    for name in value:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"runtime_env['preload'] is a list of names of modules, and {name!r} is none")
    return list(dict.fromkeys(value)) or None


def _requirements(path: str) -> list[str]:
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"{path} is not a valid file")
    return [line.strip() for line in file.read_text().splitlines() if line.strip()]


def _check_packages(
    value: Any, tool: str, switches: tuple[str, ...], texts: tuple[str, ...], lists: tuple[str, ...]
) -> dict[str, Any] | None:
    """The form that pip and uv share: a list of requirements, a file of them, or a dict of packages and options."""
    where = f"runtime_env['{tool}']"
    if isinstance(value, str | list):
        value = {"packages": value}
    if not isinstance(value, dict):
        raise TypeError(f"{where} must be of type str, List[str] or dict, got {type(value)}")
    valid = ["packages", *switches, *texts, *lists]
    if not value.keys() <= set(valid):
        raise ValueError(f"{where} can only have these fields: {', '.join(valid)}, but got: {list(value)}")
    if "packages" not in value:
        raise ValueError(f"{where} must include field 'packages', but got {value}")
    packages = value["packages"]
    if isinstance(packages, str):
        packages = _requirements(packages)
    if not _is_strings(packages):
        raise TypeError(f"{where} must be of type str or List[str], got {type(packages)}")
    result = {**value, "packages": list(dict.fromkeys(packages))}
    for name in switches:
        if not isinstance(result.setdefault(name, False), bool):
            raise TypeError(f"{where}['{name}'] must be of type bool, got {type(result[name])}")
    for name in texts:
        if name in result and not isinstance(result[name], str):
            raise TypeError(f"{where}['{name}'] must be of type str, got {type(result[name])}")
    for name in lists:
        if name in result and not _is_strings(result[name]):
            raise TypeError(f"{where}['{name}'] must be of type list[str], got {type(result[name])}")
    return result if packages else None


def _check_pip(value: Any) -> dict[str, Any] | None:
    return _check_packages(value, "pip", ("pip_check",), ("pip_version",), ("pip_install_options",))


def _check_uv(value: Any) -> dict[str, Any] | None:
    return _check_packages(value, "uv", ("uv_check",), ("uv_version",), ("uv_pip_install_options",))


def _check_conda(value: Any) -> Any:
    if isinstance(value, str):
        if not value.endswith((".yml", ".yaml")):
            return value
        file = Path(value).expanduser()
        if not file.is_file():
            raise ValueError(f"Can't find conda YAML file {value}.")
        import yaml

        try:
            parsed = yaml.safe_load(file.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise ValueError(f"Failed to read conda file {value}: {error}.") from error
        return parsed
    if not isinstance(value, dict):
        raise TypeError(f"runtime_env['conda'] must be of type str or dict, got {type(value)}.")
    return dict(value)


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "env_vars": _check_env_vars,
    "working_dir": _check_working_dir,
    "py_modules": _check_py_modules,
    "excludes": _check_excludes,
    "preload": _check_preload,
    "pip": _check_pip,
    "uv": _check_uv,
    "conda": _check_conda,
    "config": RuntimeEnvConfig.parse_and_validate_runtime_env_config,
}
