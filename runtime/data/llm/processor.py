"""Processors: the stages that a configuration asks for, applied to a data set."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runtime.data.dataset import ActorPoolStrategy, Dataset
from runtime.data.llm import stages
from runtime.data.llm.config import (
    ChatTemplateStageConfig,
    DetokenizeStageConfig,
    EngineProcessorConfig,
    HttpRequestProcessorConfig,
    HttpRequestStageConfig,
    ProcessorConfig,
    StageConfig,
    TokenizerStageConfig,
    Workers,
    stage_config,
    workers,
)
from runtime.data.llm.http import HttpRequests

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """One step over all rows.

    Attributes:
        inputs: columns that the stage reads, each with what it is.
        make: the rows' part, constructed once in each actor.
        options: of `map_batches`.
    """

    name: str
    inputs: Mapping[str, str]
    make: Callable[[], stages.RowStage]
    options: Mapping[str, Any]


class Processor:
    """Applies stages to a data set: `processor(ds)`."""

    DATA_COLUMN = stages.COLUMN

    def __init__(
        self,
        chain: tuple[Stage, ...],
        preprocess: Any = None,
        postprocess: Any = None,
        preprocess_map_kwargs: Mapping[str, Any] | None = None,
        postprocess_map_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._chain = chain
        self._before = preprocess, dict(preprocess_map_kwargs or {})
        self._after = postprocess, dict(postprocess_map_kwargs or {})

    def __call__(self, dataset: Dataset) -> Dataset:
        """The data set with the results. Nothing runs yet."""
        dataset = _mapped(dataset, stages.packed, stages.Packed, *self._before)
        for stage in self._chain:
            dataset = dataset.map_batches(
                stages.Rows,
                fn_constructor_args=(stage.name, stage.make),
                batch_format="pyarrow",
                **stage.options,
            )
        return _mapped(dataset, stages.unpacked, stages.Unpacked, *self._after)

    def list_stage_names(self) -> list[str]:
        """The names of the stages, in order."""
        return [stage.name for stage in self._chain]

    def get_stage_by_name(self, name: str) -> Stage:
        """A stage.

        Raises:
            ValueError: there is none of that name.
        """
        for stage in self._chain:
            if stage.name == name:
                return stage
        raise ValueError(f"There is no stage {name!r}; there are {', '.join(self.list_stage_names())}.")

    def log_input_column_names(self) -> None:
        """Logs the columns that `preprocess` must leave for the first stage."""
        if not self._chain:
            log.info("The processor has no stages: no columns are needed.")
            return
        log.info("Columns for the first stage, %s:", self._chain[0].name)
        for name, meaning in self._chain[0].inputs.items():
            log.info("  %s: %s", name, meaning)


def _mapped(
    dataset: Dataset, function: Callable[..., Any], wrapper: type, fn: Any, options: Mapping[str, Any]
) -> Dataset:
    """The rows mapped by the user's function, which is bound to a step of ours, so that Arrow is not between them."""
    if isinstance(fn, type):
        given = options.get("fn_constructor_args", ())
        return dataset.map(wrapper, **{**options, "fn_constructor_args": (fn, *given)})
    return dataset.map(functools.partial(function, fn), **options)


def build_processor(
    config: ProcessorConfig,
    preprocess: Any = None,
    postprocess: Any = None,
    preprocess_map_kwargs: Mapping[str, Any] | None = None,
    postprocess_map_kwargs: Mapping[str, Any] | None = None,
    builder_kwargs: Mapping[str, Any] | None = None,
) -> Processor:
    """A processor for data sets.

    Args:
        preprocess: makes of a row what the first stage reads (`messages`, `prompt` or `tokenized_prompt`, and
            `sampling_params` or `pooling_params`; `payload` for requests), or a class of such functions. All its
            columns are there for `postprocess`.
        postprocess: makes the row of the result. Without it, rows have all columns.
        preprocess_map_kwargs, postprocess_map_kwargs: of `Dataset.map`.
        builder_kwargs: `chat_template_kwargs`, of engines.

    Raises:
        TypeError, ValueError: the configuration or the arguments are wrong.
    """
    extra = dict(builder_kwargs or {})
    match config:
        case HttpRequestProcessorConfig():
            chain = _http(config)
        case EngineProcessorConfig():
            chain = _engine(config, extra.pop("chat_template_kwargs", None))
        case _:
            raise TypeError(f"build_processor takes a processor's configuration, not {config!r}.")
    if extra:
        raise TypeError(f"{type(config).__name__} takes no {', '.join(sorted(extra))} in builder_kwargs.")
    return Processor(chain, preprocess, postprocess, preprocess_map_kwargs, postprocess_map_kwargs)


def build_llm_processor(config: ProcessorConfig, *args: Any, **kwargs: Any) -> Processor:
    """The former name of `build_processor`."""
    warnings.warn("build_llm_processor is deprecated: use build_processor.", DeprecationWarning, stacklevel=2)
    return build_processor(config, *args, **kwargs)


def _options(
    stage: StageConfig, config: ProcessorConfig, concurrency: Workers, runtime_env: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Of `map_batches`, for a stage."""
    least, most = workers(stage.concurrency or concurrency)
    options: dict[str, Any] = {
        "batch_size": stage.batch_size or config.batch_size,
        "compute": ActorPoolStrategy(min_size=least, max_size=most),
    }
    environment = stage.runtime_env or runtime_env
    given = {"num_cpus": stage.num_cpus, "memory": stage.memory, "runtime_env": environment}
    return {**options, **{name: value for name, value in given.items() if value is not None}}


def _http(config: HttpRequestProcessorConfig) -> tuple[Stage, ...]:
    stage = stage_config(config.http_request_stage, HttpRequestStageConfig)
    if stage is None:
        return ()
    make = functools.partial(HttpRequests, config)
    inputs = {"payload": "what is posted, as JSON; with bytes or a dict that has `content`, as a form"}
    return (Stage("HttpRequestStage", inputs, make, _options(stage, config, config.concurrency, None)),)


def _engine(config: EngineProcessorConfig, template_kwargs: Mapping[str, Any] | None) -> tuple[Stage, ...]:
    beside: Workers = (1, workers(config.concurrency)[1])
    chain: list[Stage] = []

    def add(
        name: str, inputs: Mapping[str, str], make: Callable[[], stages.RowStage], stage: StageConfig
    ) -> None:
        if (
            stage.num_cpus is None
        ):  # no CPU of its own: on a small machine, the pools would wait for each other
            stage = replace(stage, num_cpus=0)
        chain.append(Stage(name, inputs, make, _options(stage, config, beside, config.runtime_env)))

    chat = stage_config(config.chat_template_stage, ChatTemplateStageConfig)
    if chat is not None:
        kwargs = {**(chat.chat_template_kwargs or {}), **(template_kwargs or {})}
        make_chat = functools.partial(
            stages.ChatTemplate, chat.model_source or config.model_source, chat.chat_template, kwargs
        )
        add("ChatTemplateStage", {"messages": "a list of dicts with `role` and `content`"}, make_chat, chat)
    elif template_kwargs:
        raise ValueError("chat_template_kwargs need the chat template stage.")
    tokens = stage_config(config.tokenize_stage, TokenizerStageConfig)
    if tokens is not None:
        make_tokens = functools.partial(stages.Tokenize, tokens.model_source or config.model_source)
        add("TokenizeStage", {"prompt": "text"}, make_tokens, tokens)

    make_engine = functools.partial(
        stages.Inference,
        functools.partial(
            config.engine_class(), config.model_source, config.task_type, dict(config.engine_kwargs)
        ),
        config.max_concurrent_batches,
        config.should_continue_on_error,
    )
    options = _options(StageConfig(), config, config.concurrency, config.runtime_env)
    least, most = workers(config.concurrency)
    options["compute"] = ActorPoolStrategy(
        min_size=least, max_size=most, max_tasks_in_flight_per_actor=config.max_tasks_in_flight_per_actor
    )
    if config.gpus():
        options["num_gpus"] = config.gpus()
    if config.accelerator_type is not None:
        options["accelerator_type"] = config.accelerator_type
    inputs = {
        "prompt or tokenized_prompt": "text or a list of tokens",
        "sampling_params or pooling_params": "a dict under vLLM's names; may be left out",
    }
    chain.append(Stage("EngineStage", inputs, make_engine, options))

    text = stage_config(config.detokenize_stage, DetokenizeStageConfig)
    if text is not None and config.task_type == "generate":
        make_text = functools.partial(stages.Detokenize, text.model_source or config.model_source)
        add("DetokenizeStage", {"generated_tokens": "a list of tokens"}, make_text, text)
    return tuple(chain)
