"""What to serve, and how: the configurations of users, with Ray's names."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

from runtime.serve.config import imported
from runtime.serve.llm import _sources

ENGINES = ("vLLM", "transformers")


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), validate_default=True)

    @classmethod
    def parse_yaml(cls, text: str, **kwargs: Any) -> Self:
        """From YAML.

        Args:
            **kwargs: instead of what it says.
        """
        import yaml

        return cls.model_validate({**(yaml.safe_load(text) or {}), **kwargs})

    @classmethod
    def from_file(cls, path: str, **kwargs: Any) -> Self:
        """From a YAML file."""
        with open(path, encoding="utf-8") as file:
            return cls.parse_yaml(file.read(), **kwargs)


class CloudMirrorConfig(_Config):
    """A model in a bucket.

    Attributes:
        bucket_uri: its folder, a URL that fsspec knows.
        extra_files: not supported.
    """

    bucket_uri: str | None = None
    extra_files: list[Any] = Field(default_factory=list, max_length=0)


class ModelLoadingConfig(_Config):
    """The model.

    Attributes:
        model_id: the name that requests use. May not have a ":", which precedes the name of an adapter.
        model_source: a name at Hugging Face, a folder, a URL of a folder that fsspec knows, or a `CloudMirrorConfig`;
            None: `model_id`.
        tokenizer_source: of the tokenizer, if it is somewhere else.
    """

    model_id: str = Field(min_length=1, pattern=r"^[^:]+$")
    model_source: str | CloudMirrorConfig | None = None
    tokenizer_source: str | None = None

    def local_source(self) -> str:
        """What libraries load the model from. Copies a remote one.

        Raises:
            OSError: it could not be copied.
        """
        source = self.model_source
        if isinstance(source, CloudMirrorConfig):
            source = source.bucket_uri
        return _sources.fetched(source or self.model_id)


class LoraConfig(_Config):
    """LoRA adapters of the model. A request for the model "base:adapter" uses the one in the folder "adapter".

    Attributes:
        dynamic_lora_loading_path: a folder, or a URL of one, with a folder for each adapter.
        max_num_adapters_per_replica: how many are loaded at a time; the one not used for the longest time goes first.
        download_timeout_s: of the copy of an adapter; None: no limit.
        max_download_tries: of the copy.
    """

    dynamic_lora_loading_path: str | None = None
    max_num_adapters_per_replica: PositiveInt = 16
    download_timeout_s: float | None = Field(30.0, gt=0)
    max_download_tries: PositiveInt = 3

    @field_validator("dynamic_lora_loading_path")
    @classmethod
    def _without_slash(cls, value: str | None) -> str | None:
        return value.rstrip("/") if value else value


def default_engine() -> str:
    """vLLM if it is installed where the configuration is made, else transformers."""
    return "vLLM" if importlib.util.find_spec("vllm") is not None else "transformers"


class LLMConfig(_Config):
    """A model and its deployment.

    Attributes:
        model_loading_config: see `ModelLoadingConfig`.
        llm_engine: "vLLM" or "transformers".
        engine_kwargs: of vLLM's engine; see `TransformersEngine` for the other one.
        accelerator_type: of the node. With it, or with vLLM, a replica has as many GPUs as `tensor_parallel_size` and
            `pipeline_parallel_size` of `engine_kwargs` need, unless `deployment_config` tells `num_gpus`.
        placement_group_config: `bundles`, or `bundle_per_worker`: their sum is asked for besides, on one node.
        lora_config: see `LoraConfig`.
        deployment_config: options of the deployment.
        runtime_env: of the replica.
        server_cls: instead of `LLMServer`: a class, or its import path.
        experimental_configs, log_engine_metrics: no effect.
    """

    runtime_env: dict[str, Any] | None = None
    model_loading_config: ModelLoadingConfig
    llm_engine: str = Field(default_factory=default_engine)
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    accelerator_type: str | None = None
    placement_group_config: dict[str, Any] | None = None
    lora_config: LoraConfig | None = None
    deployment_config: dict[str, Any] = Field(default_factory=dict)
    server_cls: Any = None
    experimental_configs: dict[str, Any] = Field(default_factory=dict)
    log_engine_metrics: bool | None = True

    @field_validator("llm_engine")
    @classmethod
    def _known_engine(cls, value: str) -> str:
        if value not in ENGINES:
            raise ValueError(f"Unsupported engine: {value}. Engines are {', '.join(ENGINES)}.")
        return value

    @field_validator("deployment_config")
    @classmethod
    def _valid_deployment(cls, value: dict[str, Any]) -> dict[str, Any]:
        from runtime.serve.deployment import checked, merged

        for name in ("placement_group_bundles", "placement_group_strategy"):
            if name in value:
                raise ValueError(f"{name} does not belong in deployment_config: set placement_group_config.")
        try:
            checked(merged({}, {key: option for key, option in value.items() if key != "name"}))
        except (TypeError, ValueError) as error:
            raise ValueError(f"Invalid deployment config: {error}") from error
        return value

    @field_validator("server_cls")
    @classmethod
    def _loaded_server(cls, value: Any) -> Any:
        return imported_class(value)

    @model_validator(mode="after")
    def _one_node(self) -> Self:
        config = self.placement_group_config or {}
        unknown = sorted(set(config) - {"bundles", "bundle_per_worker", "strategy"})
        if unknown:
            raise ValueError(f"placement_group_config: {unknown[0]} is not known.")
        if "bundles" in config and "bundle_per_worker" in config:
            raise ValueError("placement_group_config takes bundles or bundle_per_worker, not both.")
        if config.get("strategy", "PACK") not in ("PACK", "STRICT_PACK"):
            raise ValueError(
                f"placement_group_config: strategy {config['strategy']} is not supported: an engine has all of its "
                "GPUs on one node."
            )
        return self

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        return self.model_loading_config.model_id

    @property
    def input_modality(self) -> Literal["text"]:
        """What requests consist of."""
        return "text"

    @property
    def max_request_context_length(self) -> int | None:
        """Tokens of a prompt and its answer, if the configuration limits them."""
        return self.engine_kwargs.get("max_model_len")

    @property
    def workers(self) -> int:
        """How many GPUs the model is spread over, if it is on GPUs."""
        sizes = [int(self.engine_kwargs.get(f"{name}_parallel_size", 1)) for name in ("tensor", "pipeline")]
        return sizes[0] * sizes[1]

    def resources(self) -> dict[str, float]:
        """What a replica needs besides the options of its actor."""
        config = self.placement_group_config
        if config is None:
            return {"GPU": self.workers} if self.accelerator_type or self.llm_engine == "vLLM" else {}
        bundles = config.get("bundles") or [config.get("bundle_per_worker") or {}] * self.workers
        total: dict[str, float] = {}
        for bundle in bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0) + amount
        return total


def imported_class(value: Any) -> Any:
    """A class by its import path, "module:name" or "module.name"; anything else is returned as it is.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(value, str):
        return value
    try:
        return imported(value)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{value} cannot be imported: {error}") from error


def load_configs(values: list[Any]) -> list[LLMConfig]:
    """Configurations of dicts and of paths to YAML files.

    Raises:
        ValueError: there is no such file.
    """
    configs = []
    for value in values:
        if isinstance(value, str):
            if not os.path.exists(value):
                raise ValueError(f"Could not load model config from {value}, as the file does not exist.")
            configs.append(LLMConfig.from_file(value))
        else:
            configs.append(LLMConfig.model_validate(value))
    return configs
