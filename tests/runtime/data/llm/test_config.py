"""Configurations of processors: what they refuse, and which stages they make."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from runtime.data import llm
from runtime.data.llm.config import stage_config
from runtime.data.llm.engines import Output, Request


class Parrot:
    """An engine that repeats."""

    def __init__(self, model: str, task: str, options: Any) -> None:
        self.model = model

    async def run(self, requests: Sequence[Request]) -> list[Output | BaseException]:
        return [Output(prompt_tokens=(), text=each.prompt) for each in requests]


def parrot(**settings: Any) -> llm.EngineProcessorConfig:
    return llm.EngineProcessorConfig(model_source="m", engine=Parrot, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"concurrency": (3, 2)}, "concurrency must be"),
        ({"task_type": "sing"}, "task_type must be one of"),
        ({"max_concurrent_batches": 0}, "max_concurrent_batches"),
    ],
)
def test_wrong_values_of_an_engine(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parrot(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"qps": 0}, "qps must be above 0"),
        ({"max_retries": -1}, "must not be negative"),
        ({"base_retry_wait_time_in_s": -1.0}, "must not be negative"),
    ],
)
def test_wrong_values_of_requests(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.HttpRequestProcessorConfig(url="http://localhost", **settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: llm.ServeDeploymentProcessorConfig(deployment_name="d"),
        lambda: parrot(prepare_multimodal_stage=True),
        lambda: llm.vLLMEngineProcessorConfig(model_source="m", placement_group_config={"bundles": []}),
        lambda: llm.vLLMEngineProcessorConfig(model_source="m", dynamic_lora_loading_path="/p"),
    ],
)
def test_what_is_not_there_says_what_to_do(make: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"not supported.*[:;]"):
        make()


def test_an_engine_is_needed() -> None:
    with pytest.raises(ValueError, match="SGLangEngineProcessorConfig needs `engine`"):
        llm.build_processor(llm.SGLangEngineProcessorConfig(model_source="m"))


def test_stages_are_chosen_by_bool_dict_or_object() -> None:
    kind = llm.TokenizerStageConfig
    assert stage_config(True, kind) == kind()
    assert stage_config(False, kind) is None
    assert stage_config({"enabled": False}, kind) is None
    assert stage_config({"batch_size": 3}, kind) == kind(batch_size=3)
    assert stage_config(kind(num_cpus=2), kind) == kind(num_cpus=2)
    with pytest.raises(TypeError, match="a bool, a dict or a TokenizerStageConfig"):
        stage_config(llm.DetokenizeStageConfig(), kind)
    with pytest.raises(TypeError, match="size"):
        stage_config({"size": 3}, kind)


def test_the_stages_of_an_engine() -> None:
    names = ["ChatTemplateStage", "TokenizeStage", "EngineStage", "DetokenizeStage"]
    assert llm.build_processor(parrot()).list_stage_names() == names
    assert llm.build_processor(parrot(task_type="embed")).list_stage_names() == names[:-1]
    off = parrot(chat_template_stage=False, tokenize_stage=False, detokenize_stage={"enabled": False})
    assert llm.build_processor(off).list_stage_names() == ["EngineStage"]


def test_the_options_of_stages() -> None:
    config = parrot(
        batch_size=5,
        concurrency=(2, 4),
        runtime_env={"env_vars": {"A": "1"}},
        max_tasks_in_flight_per_actor=7,
        tokenize_stage={"batch_size": 9, "concurrency": 3, "num_cpus": 0.5, "memory": 100.0},
    )
    processor = llm.build_processor(config)
    chat = processor.get_stage_by_name("ChatTemplateStage").options
    assert (chat["batch_size"], chat["num_cpus"], chat["runtime_env"]) == (5, 0, {"env_vars": {"A": "1"}})
    assert (chat["compute"].min_size, chat["compute"].max_size) == (1, 4)
    tokens = processor.get_stage_by_name("TokenizeStage").options
    assert (tokens["batch_size"], tokens["num_cpus"], tokens["memory"]) == (9, 0.5, 100.0)
    assert (tokens["compute"].min_size, tokens["compute"].max_size) == (3, 3)
    engine = processor.get_stage_by_name("EngineStage").options
    assert (engine["compute"].min_size, engine["compute"].max_size) == (2, 4)
    assert engine["compute"].max_tasks_in_flight_per_actor == 7
    assert not {"num_cpus", "num_gpus", "accelerator_type"} & set(engine)
    with pytest.raises(ValueError, match="There is no stage 'X'; there are ChatTemplateStage,"):
        processor.get_stage_by_name("X")


def test_gpus_of_engines() -> None:
    small = llm.build_processor(
        llm.TransformersEngineProcessorConfig(model_source="m", accelerator_type="L4")
    )
    options = small.get_stage_by_name("EngineStage").options
    assert (options["num_gpus"], options["accelerator_type"]) == (1.0, "L4")
    config = llm.vLLMEngineProcessorConfig(
        model_source="m", engine_kwargs={"tensor_parallel_size": 2, "pipeline_parallel_size": 3}
    )
    assert llm.build_processor(config).get_stage_by_name("EngineStage").options["num_gpus"] == 6.0


def test_arguments_of_the_builder() -> None:
    with pytest.raises(TypeError, match="takes no colour in builder_kwargs"):
        llm.build_processor(parrot(), builder_kwargs={"colour": 1})
    with pytest.raises(ValueError, match="need the chat template stage"):
        llm.build_processor(
            parrot(chat_template_stage=False),
            builder_kwargs={"chat_template_kwargs": {"enable_thinking": True}},
        )
    with pytest.raises(TypeError, match="takes a processor's configuration"):
        llm.build_processor("vllm")  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match="use build_processor"):
        assert llm.build_llm_processor(parrot()).list_stage_names()


def test_columns_of_the_first_stage_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "runtime.data.llm.processor"):
        llm.build_processor(parrot()).log_input_column_names()
        llm.build_processor(
            llm.HttpRequestProcessorConfig(url="http://x", http_request_stage=False)
        ).log_input_column_names()
    assert "messages: a list of dicts" in caplog.text
    assert "no columns are needed" in caplog.text
