"""Continuous batching against the library's own `generate`, with a small model."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("pydantic")

from runtime.data.llm.transformers_model import TransformersModel
from runtime.serve.llm import LLMConfig
from runtime.serve.llm._engine.batch import Batch, Row, check_cache
from runtime.serve.llm._engine.interface import Sampling
from runtime.serve.llm._engine.sampling import Chooser
from runtime.serve.llm._engine.transformers_engine import TransformersEngine
from runtime.serve.llm._generation import Job, generate

PROMPTS = ["the cat", "and the dog ran after the cat", "on", "mat mat mat the", "dog, dog"]


@pytest.fixture(scope="module")
def loaded(folder: str) -> TransformersModel:
    return TransformersModel(folder, True, {}, "the test")


def alone(loaded: TransformersModel, prompt: str, count: int) -> list[int]:
    """What the library generates for one prompt."""
    inputs = loaded.tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        made = loaded.model.generate(**inputs, max_new_tokens=count, do_sample=False, pad_token_id=2)
    tokens: list[int] = made[0, inputs["input_ids"].shape[1] :].tolist()
    return tokens


def row(loaded: TransformersModel, prompt: str, sampling: Sampling) -> Row:
    tokens = loaded.tokenizer(prompt)["input_ids"]
    return Row(prompt, tokens, Chooser(torch, sampling, loaded.ends, "cpu"))


def greedy(count: int) -> Sampling:
    return Sampling(max_tokens=count, temperature=0)


def test_rows_that_join_and_leave_change_no_other(loaded: TransformersModel) -> None:
    expected = {prompt: alone(loaded, prompt, 20) for prompt in PROMPTS}
    made: dict[str, list[int]] = {prompt: [] for prompt in PROMPTS}
    batch = Batch(loaded)
    waiting = [row(loaded, prompt, greedy(6 + 3 * number)) for number, prompt in enumerate(PROMPTS)]
    steps = 0
    while waiting or batch.rows:
        told = batch.step() if batch.rows else []
        if waiting and steps % 2 == 0:  # one after the other, between steps of those that run
            told += batch.join([waiting.pop(0)])
        for each, token in told:
            made[each.key].append(token.id)
        batch.leave({each for each, token in told if token.finish})
        steps += 1
    for number, prompt in enumerate(PROMPTS):
        assert made[prompt] == expected[prompt][: 6 + 3 * number]


def test_a_model_without_keys_and_values_is_refused(loaded: TransformersModel) -> None:
    shape = transformers.MambaConfig(vocab_size=10, hidden_size=8, num_hidden_layers=1, state_size=2)
    check_cache(loaded)
    other = TransformersModel.__new__(TransformersModel)
    other.__dict__.update({**vars(loaded), "model": transformers.MambaForCausalLM(shape).eval()})
    with pytest.raises(ValueError, match="MambaForCausalLM does not keep keys and values of each token"):
        check_cache(other)


def test_models_with_rotary_positions_and_a_sliding_window(loaded: TransformersModel) -> None:
    shape = transformers.MistralConfig(
        vocab_size=len(loaded.tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=4,
    )
    torch.manual_seed(1)
    other = TransformersModel.__new__(TransformersModel)
    other.__dict__.update({**vars(loaded), "model": transformers.MistralForCausalLM(shape).eval()})
    batch = Batch(other)
    made: dict[str, list[int]] = {prompt: [] for prompt in PROMPTS[:2]}
    told = batch.join([row(other, PROMPTS[0], greedy(12))])
    for step in range(11):
        told += batch.step()
        if step == 4:
            told += batch.join([row(other, PROMPTS[1], greedy(12))])
    for each, token in told:
        made[each.key].append(token.id)
    assert made[PROMPTS[0]] == alone(other, PROMPTS[0], 12)
    assert made[PROMPTS[1]] == alone(other, PROMPTS[1], 7)


# ---------------------------------------------------------------- choosing


def chosen(logits: list[float], count: int = 200, **fields: Any) -> list[int]:
    chooser = Chooser(torch, Sampling(max_tokens=count, **fields), frozenset(), "cpu")
    return [chooser.choose(torch.tensor(logits)).id for _ in range(count)]


def test_filters_leave_the_likeliest_tokens() -> None:
    logits = [3.0, 2.0, 1.0, 0.0]  # 0.64, 0.24, 0.09, 0.03
    assert set(chosen(logits, seed=1)) == {0, 1, 2, 3}
    assert set(chosen(logits, seed=1, top_k=2)) == {0, 1}
    assert set(chosen(logits, seed=1, top_p=0.8)) == {0, 1}
    assert set(chosen(logits, seed=1, top_p=0.0)) == {0}
    assert set(chosen(logits, seed=1, min_p=0.1)) == {0, 1, 2}
    assert set(chosen(logits, temperature=0)) == {0}
    shares = chosen(logits, 2000, seed=2)
    assert shares.count(0) / 2000 == pytest.approx(0.64, abs=0.05)


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    logits = [0.0] * 50
    assert chosen(logits, seed=7) == chosen(logits, seed=7)
    assert chosen(logits, seed=7) != chosen(logits, seed=8)
    assert chosen(logits) != chosen(logits)


def test_penalties_make_other_tokens_likelier() -> None:
    assert chosen([1.0, 0.9, 0.0], 4, temperature=0, presence_penalty=0.5) == [0, 1, 0, 0]
    assert chosen([1.0, 0.9, 0.0], 4, temperature=0, frequency_penalty=0.5) == [0, 1, 0, 1]


def test_probabilities_and_the_end() -> None:
    sampling = Sampling(max_tokens=2, temperature=0, logprobs=2, stop_token_ids=frozenset([1]))
    chooser = Chooser(torch, sampling, frozenset([0]), "cpu")
    first = chooser.choose(torch.tensor([0.0, 1.0, 2.0]))
    assert (first.id, first.finish) == (2, None)
    assert first.logprob == pytest.approx(-0.4076, abs=1e-4)
    assert [token for token, _ in first.top] == [2, 1]
    assert chooser.choose(torch.tensor([0.0, 1.0, 2.0])).finish == "length"
    for token, ignores, finish in ((1, False, "stop"), (0, False, "stop"), (0, True, None)):
        sampling = Sampling(max_tokens=2, temperature=0, stop_token_ids=frozenset([1]), ignore_eos=ignores)
        logits = torch.nn.functional.one_hot(torch.tensor(token), 3).float()
        assert Chooser(torch, sampling, frozenset([0]), "cpu").choose(logits).finish == finish


# ---------------------------------------------------------------- the engine


def run(folder: str, test: Callable[[TransformersEngine], Awaitable[None]], **fields: Any) -> None:
    config = LLMConfig(
        model_loading_config={"model_id": "m", "model_source": folder}, llm_engine="transformers", **fields
    )

    async def body() -> None:
        engine = TransformersEngine(config)
        await engine.start()
        try:
            await test(engine)
        finally:
            engine.close()

    asyncio.run(body())


async def tokens_of(engine: TransformersEngine, prompt: str, sampling: Sampling, **more: Any) -> list[int]:
    tokens = engine.tokenizer(prompt)["input_ids"]
    return [token.id async for token in engine.generate(tokens, sampling, **more)]


def test_requests_at_the_same_time_get_what_each_gets_alone(folder: str, loaded: TransformersModel) -> None:
    async def test(engine: TransformersEngine) -> None:
        together = await asyncio.gather(
            *(tokens_of(engine, prompt, greedy(5 + 4 * place)) for place, prompt in enumerate(PROMPTS))
        )
        for place, prompt in enumerate(PROMPTS):
            assert together[place] == alone(loaded, prompt, 5 + 4 * place)
        sampled = Sampling(max_tokens=12, temperature=1.5, seed=5, top_p=0.9)
        first = await tokens_of(engine, "the", sampled)
        beside = await asyncio.gather(*(tokens_of(engine, "the", sampled) for _ in range(3)))
        assert beside == [first] * 3

    run(folder, test, engine_kwargs={"max_num_seqs": 3})  # so that some wait for others


def test_a_request_that_is_closed_makes_room(folder: str) -> None:
    async def test(engine: TransformersEngine) -> None:
        endless = Sampling(max_tokens=8000, temperature=0, ignore_eos=True)
        stream = engine.generate([5], endless)
        async with contextlib.aclosing(stream):
            await anext(stream)
            waits = asyncio.create_task(tokens_of(engine, "the", greedy(2)))
            await anext(stream)
            assert engine.running == 1
        assert len(await waits) == 2

    run(folder, test, engine_kwargs={"max_num_seqs": 1})


def test_a_failed_step_fails_its_requests_only(folder: str) -> None:
    async def test(engine: TransformersEngine) -> None:
        beyond = len(engine.tokenizer)  # the server refuses tokens like this one
        with pytest.raises(IndexError):
            await anext(engine.generate([beyond], greedy(2)))
        with pytest.raises(RuntimeError, match="The model failed in its last step"):
            await engine.check_health()
        assert len(await tokens_of(engine, "the", greedy(2))) == 2
        await engine.check_health()

    run(folder, test)


def test_a_closed_engine_ends_its_requests(folder: str) -> None:
    async def test(engine: TransformersEngine) -> None:
        stream = engine.generate([5], Sampling(max_tokens=8000, ignore_eos=True))
        await anext(stream)
        engine.close()
        with pytest.raises(RuntimeError, match="The engine was closed"):
            async for _ in stream:
                pass
        with pytest.raises(RuntimeError, match="closed or was not started"):
            await tokens_of(engine, "the", greedy(2))
        with pytest.raises(RuntimeError, match="thread does not run"):
            await engine.check_health()

    run(folder, test)


def test_embeddings_do_not_disturb_requests(folder: str, loaded: TransformersModel) -> None:
    async def test(engine: TransformersEngine) -> None:
        assert engine.max_model_len == 8192
        running = asyncio.create_task(tokens_of(engine, "the cat", greedy(30)))
        one, two = await engine.embed([[5, 6, 7], [8]])
        assert one.shape == two.shape == (32,)
        assert float((one**2).sum()) == pytest.approx(1, abs=1e-5)
        (again,) = await engine.embed([[8]])
        assert two == pytest.approx(again, abs=1e-5)
        assert await running == alone(loaded, "the cat", 30)

    run(folder, test)


def test_choices_have_seeds_of_their_own_and_stop_by_themselves(folder: str) -> None:
    async def test(engine: TransformersEngine) -> None:
        def decode(tokens: list[int]) -> str:
            return str(engine.tokenizer.decode(tokens))

        sampling = Sampling(max_tokens=10, seed=1, ignore_eos=True)
        prompts = [[5, 6], [7]]
        job = Job(prompts=prompts, samplings=[sampling] * 2, n=2)
        texts = await collected(generate(engine, decode, job))
        assert texts[0] != texts[1]
        assert texts[2] != texts[3]
        stop = texts[0][4:6]
        stopped = await collected(generate(engine, decode, Job(**{**vars(job), "stops": [stop]})))
        assert stopped[0] == texts[0][: texts[0].index(stop)]

    run(folder, test)


async def collected(pieces: AsyncIterator[Any]) -> dict[int, str]:
    texts: dict[int, str] = {}
    async for piece in pieces:
        texts[piece.choice] = texts.get(piece.choice, "") + piece.text
    return texts


def test_a_server_with_adapters_does_not_start_without_peft(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match="LoRA adapters need the package peft: pip install peft"):
        run(folder, lambda _: asyncio.sleep(0), lora_config={"dynamic_lora_loading_path": "/a"})


def test_requests_for_adapters_run_beside_others(
    folder: str, loaded: TransformersModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    peft = pytest.importorskip("peft")
    path = str(tmp_path_factory.mktemp("adapter"))
    torch.manual_seed(3)
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], init_lora_weights=False, task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(base, config).eval()
    tuned.save_pretrained(path)
    inputs = loaded.tokenizer("the cat", return_tensors="pt")
    with torch.inference_mode():
        made = tuned.generate(**inputs, max_new_tokens=15, do_sample=False, pad_token_id=2)
    expected = made[0, inputs["input_ids"].shape[1] :].tolist()
    plain = alone(loaded, "the cat", 15)
    assert expected != plain

    async def test(engine: TransformersEngine) -> None:
        await engine.load_lora("one", path)
        await engine.load_lora("other", path)
        both = await asyncio.gather(
            tokens_of(engine, "the cat", greedy(15)),
            tokens_of(engine, "the cat", greedy(15), adapter="one"),
            tokens_of(engine, "the cat", greedy(15), adapter="other"),
        )
        assert both == [plain, expected, expected]
        engine.unload_lora("one")
        assert await tokens_of(engine, "the cat", greedy(15), adapter="other") == expected
        engine.unload_lora("other")
        assert await tokens_of(engine, "the cat", greedy(15)) == plain
        with pytest.raises((ValueError, OSError)):
            await engine.load_lora("none", folder)

    run(folder, test)
