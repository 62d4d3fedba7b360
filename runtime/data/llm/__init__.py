"""Batch inference with language models: data sets whose rows pass through an engine or a web service.

    config = TransformersEngineProcessorConfig(model_source="HuggingFaceTB/SmolLM2-135M-Instruct")
    processor = build_processor(config, preprocess=lambda row: {"messages": [{"role": "user", "content": row["q"]}]},
                                postprocess=lambda row: {"answer": row["generated_text"]})
    processor(ray.data.from_items([{"q": "What is 2 + 2?"}])).show()

A processor is a chain of stages (`stages`); a configuration (`config`) says which. Engines (`engines`) run the model.
"""

from __future__ import annotations

from runtime.data.llm.config import (
    ChatTemplateStageConfig,
    DetokenizeStageConfig,
    EngineProcessorConfig,
    HttpRequestProcessorConfig,
    HttpRequestStageConfig,
    PrepareMultimodalStageConfig,
    ProcessorConfig,
    ServeDeploymentProcessorConfig,
    SGLangEngineProcessorConfig,
    TokenizerStageConfig,
    TransformersEngineProcessorConfig,
    vLLMEngineProcessorConfig,
)
from runtime.data.llm.engines import Engine, Output, Request
from runtime.data.llm.processor import Processor, build_llm_processor, build_processor

__all__ = [
    "ChatTemplateStageConfig",
    "DetokenizeStageConfig",
    "Engine",
    "EngineProcessorConfig",
    "HttpRequestProcessorConfig",
    "HttpRequestStageConfig",
    "Output",
    "PrepareMultimodalStageConfig",
    "Processor",
    "ProcessorConfig",
    "Request",
    "SGLangEngineProcessorConfig",
    "ServeDeploymentProcessorConfig",
    "TokenizerStageConfig",
    "TransformersEngineProcessorConfig",
    "build_llm_processor",
    "build_processor",
    "vLLMEngineProcessorConfig",
]
