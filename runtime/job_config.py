"""`JobConfig`: settings of a job."""

from __future__ import annotations

from typing import Any

LIFETIMES = ("detached", "non_detached")


class JobConfig:
    """Settings of a job, for `init(job_config=)`.

    Args:
        jvm_options: without effect; there are no Java workers.
        code_search_path: further folders on the workers' import path.
        runtime_env: as in `init`.
        metadata: strings by name, shown in lists of jobs.
        ray_namespace: as `namespace` in `init`.
        default_actor_lifetime: "detached" or "non_detached", for actors without the option `lifetime`.

    Raises:
        TypeError: code_search_path is not a list.
        ValueError: the lifetime is neither of the two.
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | None = None,
        runtime_env: dict[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _py_driver_sys_path: list[str] | None = None,
    ) -> None:
        if code_search_path is not None and not isinstance(code_search_path, list | tuple):
            raise TypeError(
                f"The type of code search path is incorrect: {type(code_search_path)}, not a list."
            )
        self.jvm_options = list(jvm_options or [])
        self.code_search_path = [*(code_search_path or []), *(_py_driver_sys_path or [])]
        self._client_job = _client_job
        self.metadata = dict(metadata or {})
        self.ray_namespace = ray_namespace
        self.runtime_env: dict[str, Any] = {}
        self.set_runtime_env(runtime_env)
        self.set_default_actor_lifetime(default_actor_lifetime)

    def set_metadata(self, key: str, value: str) -> None:
        """Adds one piece of metadata."""
        self.metadata[key] = value

    def set_runtime_env(self, runtime_env: dict[str, Any] | None, validate: bool = False) -> None:
        """Sets the environment of the job's workers; with `validate` it is checked now instead of in `init`."""
        if validate and runtime_env is not None:
            from runtime.runtime_env import RuntimeEnv

            runtime_env = RuntimeEnv(**runtime_env)
        self.runtime_env = runtime_env if runtime_env is not None else {}

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Sets the namespace of the job's named actors."""
        self.ray_namespace = ray_namespace

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Sets the lifetime of actors without the option `lifetime`."""
        if default_actor_lifetime not in LIFETIMES:
            raise ValueError(
                "Default actor lifetime must be one of `detached`, `non_detached`, "
                f"not {default_actor_lifetime!r}."
            )
        self.default_actor_lifetime = default_actor_lifetime

    @classmethod
    def from_json(cls, job_config_json: dict[str, Any]) -> JobConfig:
        """The configuration that a dict describes; unknown keys are ignored."""
        known = (
            "jvm_options code_search_path runtime_env metadata ray_namespace _client_job _py_driver_sys_path"
        )
        return cls(**{name: job_config_json[name] for name in known.split() if job_config_json.get(name)})
