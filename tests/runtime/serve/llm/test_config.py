"""Configurations and the deployments that follow from them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

pydantic = pytest.importorskip("pydantic")

from runtime.serve.llm import LLMConfig, LLMServer, LLMServingArgs, LoraConfig, ModelLoadingConfig, _sources
from runtime.serve.llm.builders import build_llm_deployment, build_openai_app
from runtime.serve.llm.openai_api_models import CompletionRequest, OpenAIHTTPException, refuse


def config(**fields: Any) -> LLMConfig:
    return LLMConfig(model_loading_config={"model_id": "m"}, **{"llm_engine": "transformers", **fields})


def test_dicts_become_configurations() -> None:
    made = config(lora_config={"dynamic_lora_loading_path": "/adapters/"})
    assert made.model_loading_config == ModelLoadingConfig(model_id="m")
    assert made.lora_config == LoraConfig(dynamic_lora_loading_path="/adapters")
    assert made.model_loading_config.local_source() == "m"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"llm_engine": "other"}, "Unsupported engine: other. Engines are vLLM, transformers"),
        ({"deployment_config": {"num_replicas": -1}}, "Invalid deployment config: num_replicas must be"),
        ({"deployment_config": {"placement_group_bundles": [{"CPU": 1}]}}, "set placement_group_config"),
        ({"placement_group_config": {"strategy": "SPREAD", "bundles": [{"GPU": 1}]}}, "GPUs on one node"),
        ({"unknown": 1}, "Extra inputs are not permitted"),
        ({"server_cls": "no.such:Class"}, "no.such:Class cannot be imported"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        config(**fields)


def test_a_model_id_may_not_look_like_an_adapter() -> None:
    with pytest.raises(pydantic.ValidationError):
        ModelLoadingConfig(model_id="base:adapter")


def test_resources_of_a_replica() -> None:
    options = LLMServer.get_deployment_options(config())
    assert options == {"max_ongoing_requests": 256, "ray_actor_options": {"num_cpus": 1}}
    gpus = config(llm_engine="vLLM", engine_kwargs={"tensor_parallel_size": 2}, accelerator_type="L4")
    assert LLMServer.get_deployment_options(gpus)["ray_actor_options"] == {
        "num_cpus": 1,
        "num_gpus": 2,
        "accelerator_type": "L4",
    }
    bundles = config(
        placement_group_config={"bundles": [{"CPU": 2, "NPU": 1}, {"CPU": 1, "NPU": 1}]},
        deployment_config={"ray_actor_options": {"num_cpus": 0}, "autoscaling_config": {"max_replicas": 2}},
    )
    options = LLMServer.get_deployment_options(bundles)
    assert options["ray_actor_options"] == {"num_cpus": 3, "resources": {"NPU": 2}}
    assert options["autoscaling_config"] == {"max_replicas": 2, "target_ongoing_requests": 128}


def test_a_target_for_autoscaling() -> None:
    made = config(deployment_config={"num_replicas": "auto", "max_ongoing_requests": 40})
    assert LLMServer.get_deployment_options(made)["autoscaling_config"] == {"target_ongoing_requests": 20}
    app = build_llm_deployment(made)
    assert app._bound_deployment._options.autoscaling["target_ongoing_requests"] == 20


def test_names_of_deployments() -> None:
    made = LLMConfig(model_loading_config={"model_id": "org/a.b"}, llm_engine="transformers")
    assert build_llm_deployment(made).__class__.__name__ == "Application"
    app = build_llm_deployment(made, override_serve_options={"num_replicas": 3})
    assert (app._bound_deployment.name, app._bound_deployment.num_replicas) == ("LLMServer:org--a_b", 3)
    assert build_llm_deployment(made, name_prefix="x-")._bound_deployment.name == "x-org--a_b"


def test_arguments_of_an_application(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("model_loading_config: {model_id: n}\nllm_engine: transformers\n")
    args = LLMServingArgs(llm_configs=[config(), str(path)])
    assert [each.model_id for each in args.llm_configs] == ["m", "n"]
    app = build_openai_app(args)
    assert app._bound_deployment.name == "OpenAiIngress"
    for wrong, message in (
        ([], "List of models is empty"),
        ([config(), config()], "Duplicate models"),
        (["/no/such.yaml"], "the file does not exist"),
    ):
        with pytest.raises(pydantic.ValidationError, match=message):
            LLMServingArgs(llm_configs=wrong)


def test_adapters_are_folders_directly_in_the_path(tmp_path: Path) -> None:
    base = tmp_path / "adapters"
    for name in ("one", "two"):
        (base / name).mkdir(parents=True)
        (base / name / "adapter_config.json").write_text("{}")
    (base / "empty").mkdir()
    (tmp_path / "adapter_config.json").write_text("{}")
    for path in (str(base), f"file://{base}"):
        assert _sources.adapters_in(path) == ["one", "two"]
        assert _sources.adapter_folder(path, "one") == f"{path}/one"
        for name in ("empty", "three", "..", "../adapters/one", "", "o?e"):
            with pytest.raises(FileNotFoundError):
                _sources.adapter_folder(path, name)
    copy = Path(_sources.fetched(f"file://{base}/one"))
    assert (copy / "adapter_config.json").read_text() == "{}"
    assert _sources.fetched(str(base)) == str(base)
    assert _sources.adapters_in(str(tmp_path / "none")) == []


def test_a_stuck_copy_keeps_no_other_one(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.local import LocalFileSystem

    goes_on = threading.Event()
    copies: list[str] = []

    class Slow(LocalFileSystem):  # type: ignore[misc]
        """A bucket whose folder "stuck" takes long."""

        protocol = "slow"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.removeprefix("slow://")))

        def get(self, path: str, to: str, **options: Any) -> None:
            copies.append(path)
            if path.rstrip("/").endswith("/stuck"):
                assert goes_on.wait(20)
            super().get(path, to, **options)

    fsspec.register_implementation("slow", Slow, clobber=True)
    for name in ("stuck", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(name)
    stuck = [_sources.fetching(f"slow://{tmp_path}/stuck") for _ in range(2)]
    try:
        other = _sources.fetching(f"slow://{tmp_path}/other").result(10)
        assert (Path(other) / "adapter_config.json").read_text() == "other"
        assert not stuck[0].cancel()  # others wait for it
    finally:
        goes_on.set()
    assert (Path(stuck[0].result(10)) / "adapter_config.json").read_text() == "stuck"
    assert stuck[1].result(10) == stuck[0].result(10)
    assert len(copies) == 2
    with pytest.raises(FileNotFoundError):
        _sources.fetched(f"slow://{tmp_path}/later")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "adapter_config.json").write_text("later")
    assert (Path(_sources.fetched(f"slow://{tmp_path}/later")) / "adapter_config.json").read_text() == "later"


def test_null_is_what_the_server_chooses() -> None:
    request = CompletionRequest.model_validate({"prompt": "a", "n": None, "max_tokens": None, "stop": None})
    assert (request.n, request.max_tokens, request.stops) == (1, 16, [])
    assert "max_tokens" not in request.model_fields_set


def test_what_the_server_does_not_support_is_refused() -> None:
    refuse(CompletionRequest(prompt="a", best_of=1, echo=False))
    for fields in ({"echo": True}, {"best_of": 3}, {"suffix": "x"}, {"stop": ["a"] * 17}):
        with pytest.raises(OpenAIHTTPException) as caught:
            refuse(CompletionRequest(prompt="a", **fields))
        assert (caught.value.status_code, caught.value.param) == (400, next(iter(fields)))
