"""Language models behind OpenAI's API.

    config = LLMConfig(model_loading_config=dict(model_id="small", model_source="HuggingFaceTB/SmolLM2-135M-Instruct"))
    serve.run(build_openai_app(LLMServingArgs(llm_configs=[config])))

An ingress (`ingress`) takes HTTP requests to the deployment of each model (`server`), whose engine (`_engine`) runs it.
"""

from __future__ import annotations

from runtime.serve.llm.builders import LLMServingArgs, build_llm_deployment, build_openai_app
from runtime.serve.llm.config import CloudMirrorConfig, LLMConfig, LoraConfig, ModelLoadingConfig
from runtime.serve.llm.server import LLMServer

__all__ = [
    "CloudMirrorConfig",
    "LLMConfig",
    "LLMServer",
    "LLMServingArgs",
    "LoraConfig",
    "ModelLoadingConfig",
    "build_llm_deployment",
    "build_openai_app",
]
