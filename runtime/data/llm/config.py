"""Configurations of processors and of their stages, with Ray's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from runtime.data.llm.engines import Engine, TaskType

Workers = int | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """How a stage runs.

    Attributes:
        enabled: False leaves the stage out.
        batch_size: rows for each call; None: the processor's.
        concurrency: actors, or (least, most); None: one up to the processor's.
        runtime_env, num_cpus, memory: of each actor. Stages beside an engine need no CPU of their own by default.
    """

    enabled: bool = True
    batch_size: int | None = None
    concurrency: Workers | None = None
    runtime_env: Mapping[str, Any] | None = None
    num_cpus: float | None = None
    memory: float | None = None


@dataclass(frozen=True, kw_only=True)
class HttpRequestStageConfig(StageConfig):
    """Of the stage that asks a web service."""


@dataclass(frozen=True, kw_only=True)
class ChatTemplateStageConfig(StageConfig):
    """Of the stage that makes `prompt` of `messages`.

    Attributes:
        model_source: whose template; None: the engine's model.
        chat_template: instead of the model's own.
        chat_template_kwargs: variables of the template.
    """

    model_source: str | None = None
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class TokenizerStageConfig(StageConfig):
    """Of the stage that makes `tokenized_prompt` of `prompt`."""

    model_source: str | None = None


@dataclass(frozen=True, kw_only=True)
class DetokenizeStageConfig(StageConfig):
    """Of the stage that makes `generated_text` of `generated_tokens`."""

    model_source: str | None = None


@dataclass(frozen=True, kw_only=True)
class PrepareMultimodalStageConfig(StageConfig):
    """Not supported: load images in `preprocess` and pass them as `image`."""

    model_config_kwargs: Mapping[str, Any] | None = None
    chat_template_content_format: str | None = "string"
    apply_sys_msg_formatting: bool | None = False


_Stage = TypeVar("_Stage", bound=StageConfig)
Choice = bool | Mapping[str, Any] | StageConfig


def stage_config(choice: Choice, kind: type[_Stage]) -> _Stage | None:
    """The configuration of a stage; None: left out.

    Args:
        choice: whether it runs, or its settings.

    Raises:
        TypeError: the settings do not belong to this stage.
    """
    if isinstance(choice, bool):
        return kind() if choice else None
    if isinstance(choice, Mapping):
        choice = kind(**choice)
    if not isinstance(choice, kind):
        raise TypeError(f"a stage takes a bool, a dict or a {kind.__name__}, not {choice!r}.")
    return choice if choice.enabled else None


@dataclass(frozen=True, kw_only=True)
class ProcessorConfig:
    """What all processors have.

    Attributes:
        batch_size: rows for each call of a stage.
        accelerator_type: of the actors that hold the model; None: CPUs, or any GPU for engines that need one.
        concurrency: actors of the stage that does the work, or (least, most).
    """

    batch_size: int = 32
    accelerator_type: str | None = None
    concurrency: Workers = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}.")
        least, most = workers(self.concurrency)
        if not 1 <= least <= most:
            raise ValueError(f"concurrency must be n or (m, n) with 1 <= m <= n, not {self.concurrency!r}.")


def workers(concurrency: Workers) -> tuple[int, int]:
    """The least and the most actors."""
    return (concurrency, concurrency) if isinstance(concurrency, int) else concurrency


@dataclass(frozen=True, kw_only=True)
class HttpRequestProcessorConfig(ProcessorConfig):
    """Posts each row's `payload` and puts the answer's JSON in `http_response`. Needs aiohttp.

    Attributes:
        concurrency: actors; each sends one request at a time, unless there is a `qps`.
        qps: requests an actor starts in a second, without waiting for the answers.
        max_retries: after a broken connection, or an answer of 408, 429, 502, 503 or 504.
        base_retry_wait_time_in_s: before the first retry; each further one waits twice as long.
        session_factory: makes the `aiohttp.ClientSession`.
    """

    batch_size: int = 64
    url: str
    headers: Mapping[str, str] | None = None
    qps: int | None = None
    max_retries: int = 0
    base_retry_wait_time_in_s: float = 1.0
    session_factory: Callable[[], Any] | None = None
    http_request_stage: Choice = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.qps is not None and self.qps <= 0:
            raise ValueError(f"qps must be above 0, not {self.qps}.")
        if self.max_retries < 0 or self.base_retry_wait_time_in_s < 0:
            raise ValueError("max_retries and base_retry_wait_time_in_s must not be negative.")


@dataclass(frozen=True, kw_only=True)
class EngineProcessorConfig(ProcessorConfig):
    """A processor with a model in a pool of actors.

    Attributes:
        model_source: a name or a folder.
        engine: the class that runs the model.
        runtime_env: of all actors.
        max_concurrent_batches: at the engine at a time, in each actor.
        max_tasks_in_flight_per_actor: blocks sent to an actor ahead of their turn.
        should_continue_on_error: a row that failed goes on, with the error in `__inference_error__`.
        chat_template_stage, tokenize_stage, detokenize_stage: whether they run, or their settings.
        engine_kwargs: of the engine.
    """

    model_source: str
    engine: type[Engine] | None = None
    runtime_env: Mapping[str, Any] | None = None
    max_pending_requests: int | None = None
    max_concurrent_batches: int = 8
    max_tasks_in_flight_per_actor: int | None = None
    should_continue_on_error: bool = False
    chat_template_stage: Choice = True
    tokenize_stage: Choice = True
    detokenize_stage: Choice = True
    prepare_multimodal_stage: Choice = False
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    task_type: TaskType = "generate"

    tasks: ClassVar[tuple[TaskType, ...]] = ("generate", "embed", "classify", "score")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task_type not in self.tasks:
            raise ValueError(f"task_type must be one of {', '.join(self.tasks)}, not {self.task_type!r}.")
        if self.max_concurrent_batches < 1:
            raise ValueError(f"max_concurrent_batches must be at least 1, not {self.max_concurrent_batches}.")
        if stage_config(self.prepare_multimodal_stage, PrepareMultimodalStageConfig) is not None:
            raise NotImplementedError(
                "prepare_multimodal_stage is not supported: load images in `preprocess` and pass them as `image`."
            )

    def engine_class(self) -> type[Engine]:
        """The class of the engine.

        Raises:
            ValueError: there is none.
        """
        if self.engine is None:
            raise ValueError(
                f"{type(self).__name__} needs `engine`, a class as runtime.data.llm.Engine describes."
            )
        return self.engine

    def gpus(self) -> float:
        """GPUs of each actor."""
        return 0.0 if self.accelerator_type is None else 1.0


@dataclass(frozen=True, kw_only=True)
class TransformersEngineProcessorConfig(EngineProcessorConfig):
    """A model of the `transformers` library, on a CPU, or on a GPU if `accelerator_type` names one."""

    tasks: ClassVar[tuple[TaskType, ...]] = ("generate", "embed")

    def engine_class(self) -> type[Engine]:
        from runtime.data.llm.transformers_engine import TransformersEngine

        return self.engine or TransformersEngine


@dataclass(frozen=True, kw_only=True)
class vLLMEngineProcessorConfig(EngineProcessorConfig):
    """A model in vLLM, on GPUs of one node: as many as `tensor_parallel_size` and `pipeline_parallel_size` need.

    This engine has not been run yet.

    Attributes:
        max_pending_requests, log_engine_metrics: no effect.
    """

    log_engine_metrics: bool = True
    dynamic_lora_loading_path: str | None = None
    placement_group_config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.placement_group_config is not None:
            raise NotImplementedError(
                "placement_group_config is not supported: an engine has all of its GPUs on one node."
            )
        if self.dynamic_lora_loading_path is not None:
            raise NotImplementedError(
                "dynamic_lora_loading_path is not supported: merge the adapter into the model."
            )

    def engine_class(self) -> type[Engine]:
        from runtime.data.llm.vllm_engine import VllmEngine

        return self.engine or VllmEngine

    def gpus(self) -> float:
        sizes = (self.engine_kwargs.get(f"{name}_parallel_size", 1) for name in ("tensor", "pipeline"))
        return float(next(sizes) * next(sizes))


@dataclass(frozen=True, kw_only=True)
class SGLangEngineProcessorConfig(EngineProcessorConfig):
    """A model in SGLang, if `engine` names a class that runs it."""

    tasks: ClassVar[tuple[TaskType, ...]] = ("generate",)


@dataclass(frozen=True, kw_only=True)
class ServeDeploymentProcessorConfig(ProcessorConfig):
    """Rows sent to a Serve deployment: not supported yet."""

    deployment_name: str
    app_name: str = "default"
    dtype_mapping: Mapping[str, type[Any]] | None = None
    should_continue_on_error: bool = False
    request_timeout_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        raise NotImplementedError(
            "ServeDeploymentProcessorConfig is not supported yet; ask the deployment's route with "
            "HttpRequestProcessorConfig."
        )
