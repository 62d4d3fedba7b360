"""Applications from configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from runtime.serve.api import deployment
from runtime.serve.deployment import Application
from runtime.serve.llm.config import LLMConfig, _Config, imported_class, load_configs
from runtime.serve.llm.openai_api_models import to_model_metadata
from runtime.serve.llm.server import LLMServer

DEFAULT_INGRESS = "runtime.serve.llm.ingress:OpenAiIngress"


class IngressClsConfig(_Config):
    """The class of the ingress.

    Attributes:
        ingress_cls: a class like `OpenAiIngress`, or its import path.
        ingress_extra_kwargs: more arguments of its constructor.
    """

    ingress_cls: Any = DEFAULT_INGRESS
    ingress_extra_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator("ingress_cls")
    @classmethod
    def _imported(cls, value: Any) -> Any:
        return imported_class(value)


class LLMServingArgs(_Config):
    """Arguments of `build_openai_app`.

    Attributes:
        llm_configs: configurations, dicts, or paths to YAML files.
        ingress_cls_config: see `IngressClsConfig`.
        ingress_deployment_config: options of the ingress's deployment.
    """

    llm_configs: list[Any]
    ingress_cls_config: IngressClsConfig = Field(default_factory=IngressClsConfig)
    ingress_deployment_config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("llm_configs")
    @classmethod
    def _loaded(cls, value: list[Any]) -> list[LLMConfig]:
        return load_configs(value)

    @model_validator(mode="after")
    def _different(self) -> LLMServingArgs:
        ids = [config.model_id for config in self.llm_configs]
        if not ids:
            raise ValueError("List of models is empty: llm_configs needs at least one.")
        if len(set(ids)) != len(ids):
            raise ValueError("Duplicate models found: every model_id must be unique.")
        return self


def build_llm_deployment(
    llm_config: LLMConfig,
    *,
    name_prefix: str | None = None,
    bind_kwargs: dict[str, Any] | None = None,
    override_serve_options: dict[str, Any] | None = None,
    deployment_cls: type[LLMServer] | None = None,
) -> Application:
    """The deployment of one model, for handles.

    Args:
        name_prefix: of the deployment's name; None: the name of the class and ":".
        bind_kwargs: more arguments of the class.
        override_serve_options: options of the deployment that go before those of the configuration.
        deployment_cls: instead of `LLMServer`.
    """
    cls = deployment_cls or llm_config.server_cls or LLMServer
    options = cls.get_deployment_options(llm_config)
    name = options.pop("name", None) or llm_config.model_id.replace("/", "--").replace(".", "_")
    options["name"] = (name_prefix or f"{cls.__name__}:") + name
    options.update(override_serve_options or {})
    return deployment(cls, **options).bind(llm_config=llm_config, **(bind_kwargs or {}))  # type: ignore[no-any-return]


def build_openai_app(llm_serving_args: LLMServingArgs | Mapping[str, Any]) -> Application:
    """The application that serves models by OpenAI's API.

    Args:
        llm_serving_args: see `LLMServingArgs`.

    Raises:
        pydantic.ValidationError: they are not valid.
    """
    from runtime.serve.llm.ingress import make_fastapi_ingress

    args = LLMServingArgs.model_validate(llm_serving_args)
    configs: list[LLMConfig] = args.llm_configs
    chosen = args.ingress_cls_config
    cls = make_fastapi_ingress(chosen.ingress_cls)
    options = {**chosen.ingress_cls.get_deployment_options(configs), **args.ingress_deployment_config}
    bound = deployment(cls, **options).bind(
        llm_deployments={config.model_id: build_llm_deployment(config) for config in configs},
        model_cards={config.model_id: to_model_metadata(config.model_id, config) for config in configs},
        lora_paths={
            config.model_id: config.lora_config.dynamic_lora_loading_path
            for config in configs
            if config.lora_config is not None
        },
        **chosen.ingress_extra_kwargs,
    )
    return bound  # type: ignore[no-any-return]
