"""A small model with random weights: what the engine generates is what the library alone does."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from runtime.data.llm import Output, Request, stages
from runtime.data.llm.transformers_engine import TransformersEngine
from tests.runtime.tiny_llm import save_tiny_llm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of two layers with its tokenizer."""
    path = str(tmp_path_factory.mktemp("model"))
    save_tiny_llm(path)
    return path


@pytest.fixture(scope="module")
def engine(folder: str) -> TransformersEngine:
    return TransformersEngine(folder, "generate", {})


def run(engine: TransformersEngine, *requests: Request) -> list[Any]:
    return list(asyncio.run(engine.run(requests)))


def test_a_padded_batch_gives_what_each_prompt_gives_alone(folder: str, engine: TransformersEngine) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = ["the cat", "and the dog ran after the cat", "on"]
    greedy = {"temperature": 0, "max_tokens": 6}
    outputs = run(engine, *(Request(prompt=each, params=greedy) for each in prompts))
    for prompt, output in zip(prompts, outputs, strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            alone = model.generate(**inputs, max_new_tokens=6, do_sample=False, pad_token_id=2)[0].tolist()
        length = inputs["input_ids"].shape[1]
        assert output.prompt_tokens == tuple(alone[:length])
        assert output.tokens == tuple(alone[length:])
        assert output.text == tokenizer.decode(alone[length:], skip_special_tokens=True)


def test_a_seed_repeats_a_sample(engine: TransformersEngine) -> None:
    request = Request(prompt="the", params={"temperature": 1.5, "seed": 3, "max_tokens": 8})
    first, again = run(engine, request)[0], run(engine, request)[0]
    assert isinstance(first, Output)
    assert first.tokens == again.tokens


def test_errors_belong_to_their_rows(engine: TransformersEngine) -> None:
    good = Request(prompt="the", params={"max_tokens": 1})
    outputs = run(
        engine, good, Request(prompt="the", params={"beams": 2}), Request(prompt="", params={"seed": 1})
    )
    assert isinstance(outputs[0], Output)
    assert "beams is not known" in str(outputs[1])
    assert "the prompt is empty" in str(outputs[2])


def test_embeddings_do_not_depend_on_the_batch(folder: str) -> None:
    engine = TransformersEngine(folder, "embed", {})
    prompts = [Request(prompt=each) for each in ("the cat", "the dog ran after the cat")]
    together = run(engine, *prompts)
    for request, output in zip(prompts, together, strict=True):
        alone = run(engine, request)[0]
        np.testing.assert_allclose(output.embeddings, alone.embeddings, atol=1e-5)
        assert float(np.linalg.norm(output.embeddings)) == pytest.approx(1.0, abs=1e-5)


def test_templates_and_tokens(folder: str) -> None:
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "the cat"}]},
        {"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "dog"}]},
    ]
    asyncio.run(stages.ChatTemplate(folder, None, {"loud": True})(rows))
    assert rows[0]["prompt"] == "<user>the cat<assistant>!"
    assert rows[1]["prompt"] == "<user>the<assistant>dog"
    asyncio.run(stages.Tokenize(folder)(rows))
    for row in rows:
        row["generated_tokens"] = [*row["tokenized_prompt"], 2]
    asyncio.run(stages.Detokenize(folder)(rows))
    assert [row["generated_text"] for row in rows] == [row["prompt"] for row in rows]
    with pytest.raises(ValueError, match="ChatTemplateStage needs the column 'messages': preprocess made a"):
        asyncio.run(stages.ChatTemplate(folder, None, {})([{"a": 1}]))
