"""The official client against an application with a small model: what it reads is what the model alone generates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

openai = pytest.importorskip("openai")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("fastapi")

import runtime
from runtime import serve
from runtime.serve.llm import LLMConfig, LLMServingArgs, build_openai_app
from runtime.serve.llm.openai_api_models import ChatCompletionRequest

PROMPTS = ["the cat", "and the dog ran after the cat", "on", "mat mat mat the", "dog, dog", "the"]
MESSAGES: Any = [{"role": "user", "content": "the cat"}]
CHAT = "<user>the cat<assistant>"


@pytest.fixture(scope="module")
def model(folder: str) -> Any:
    """The library's model and tokenizer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval(), tokenizer


@pytest.fixture(scope="module")
def adapters(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the adapter "tuned", if peft is installed."""
    path = tmp_path_factory.mktemp("adapters")
    try:
        import peft
    except ImportError:
        return path
    torch.manual_seed(3)
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    config = peft.LoraConfig(
        r=4, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False, task_type="CAUSAL_LM"
    )
    peft.get_peft_model(base, config).save_pretrained(str(path / "tuned"))
    return path


@pytest.fixture(scope="module")
def url(session: None, folder: str, adapters: Path) -> Iterator[str]:
    """Of the application."""
    serve.start(http_options={"port": 0})
    config = LLMConfig(
        model_loading_config={"model_id": "tiny", "model_source": folder},
        llm_engine="transformers",
        engine_kwargs={"max_num_seqs": 4},
        lora_config={"dynamic_lora_loading_path": str(adapters)} if any(adapters.iterdir()) else None,
        deployment_config={
            "ray_actor_options": {"num_cpus": 0},
            "request_router_config": {
                "request_router_class": "runtime.serve.llm.request_router:PrefixCacheAffinityRouter"
            },
        },
    )
    options = {"ray_actor_options": {"num_cpus": 0}}
    serve.run(
        build_openai_app(LLMServingArgs(llm_configs=[config], ingress_deployment_config=options)), name="llm"
    )
    controller = runtime.get_actor("SERVE_CONTROLLER_ACTOR", "serve")
    (proxy,) = runtime.get(controller.details.remote(), timeout=20)["proxies"].values()
    yield f"http://127.0.0.1:{proxy['port']}/v1"
    serve.shutdown()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as made:
        yield made


def alone(model: Any, prompt: str, count: int) -> str:
    """What the library generates for one prompt."""
    network, tokenizer = model
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        made = network.generate(**inputs, max_new_tokens=count, do_sample=False, pad_token_id=2)
    return str(tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


def test_models(client: Any) -> None:
    assert client.models.list().data[0].id == "tiny"
    card = client.models.retrieve("tiny")
    assert (card.id, card.object) == ("tiny", "model")
    with pytest.raises(openai.NotFoundError, match="The model 'none' does not exist"):
        client.models.retrieve("none")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("tiny:none")


def test_a_completion(client: Any, model: Any) -> None:
    made = client.completions.create(model="tiny", prompt="the cat", temperature=0, max_tokens=12)
    assert made.object == "text_completion"
    assert made.choices[0].text == alone(model, "the cat", 12)
    assert made.choices[0].finish_reason == "length"
    count = len(model[1]("the cat")["input_ids"])
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (count, 12)
    assert made.usage.total_tokens == count + 12


def test_prompts_choices_and_tokens(client: Any, model: Any) -> None:
    many = client.completions.create(model="tiny", prompt=PROMPTS[:2], temperature=0, max_tokens=5, n=2)
    texts = [alone(model, prompt, 5) for prompt in PROMPTS[:2]]
    assert [choice.text for choice in many.choices] == [texts[0], texts[0], texts[1], texts[1]]
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    tokens = model[1]("the cat")["input_ids"]
    made = client.completions.create(model="tiny", prompt=tokens, temperature=0, max_tokens=5)
    assert made.choices[0].text == texts[0]


def test_a_seed_repeats_a_sample(client: Any) -> None:
    asked = {"model": "tiny", "prompt": "the", "max_tokens": 10, "seed": 4, "temperature": 1.2, "top_p": 0.9}
    one, two = (client.completions.create(**asked).choices[0].text for _ in range(2))
    assert one == two
    assert client.completions.create(**{**asked, "seed": 5}).choices[0].text != one


def test_a_stop_sequence(client: Any, model: Any) -> None:
    whole = alone(model, "the cat", 20)
    stop = whole[6:9]
    asked: Any = {
        "model": "tiny",
        "prompt": "the cat",
        "temperature": 0,
        "max_tokens": 20,
        "stop": [stop, "#"],
    }
    made = client.completions.create(**asked).choices[0]
    assert (made.text, made.finish_reason) == (whole[: whole.index(stop)], "stop")
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == made.text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_chat(client: Any, model: Any) -> None:
    made = client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0, max_tokens=10)
    assert made.object == "chat.completion"
    assert made.choices[0].message.role == "assistant"
    assert made.choices[0].message.content == alone(model, CHAT, 10)
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": "the cat"}]}]
    again = client.chat.completions.create(
        model="tiny", messages=parts, temperature=0, max_completion_tokens=10
    )
    assert again.choices[0].message.content == made.choices[0].message.content


def test_a_stream_of_a_chat(client: Any, model: Any) -> None:
    stream = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        temperature=0,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len(chunks) > 5
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == alone(model, CHAT, 20)
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 20


def test_the_bytes_of_a_stream(url: str) -> None:
    body = {"model": "tiny", "prompt": "the", "max_tokens": 3, "stream": True, "temperature": 0}
    with httpx.stream("POST", f"{url}/completions", json=body, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.read().decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all("choices" in json.loads(event.removeprefix("data: ")) for event in events[:-2])


def test_probabilities(client: Any, model: Any) -> None:
    made = client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=3, logprobs=True, top_logprobs=2
    )
    content = made.choices[0].logprobs.content
    network, tokenizer = model
    with torch.inference_mode():
        logits = network(**tokenizer(CHAT, return_tensors="pt")).logits[0, -1]
    expected = torch.log_softmax(logits, -1).topk(2)
    assert [entry.logprob for entry in content[0].top_logprobs] == pytest.approx(
        expected.values.tolist(), abs=1e-4
    )
    assert content[0].token == tokenizer.decode([int(expected.indices[0])])
    assert len(content) == 3
    plain = client.completions.create(model="tiny", prompt="the", temperature=0, max_tokens=3, logprobs=1)
    told = plain.choices[0].logprobs
    assert told.text_offset[0] == 0
    assert len(told.tokens) == len(told.token_logprobs) == 3
    assert list(told.top_logprobs[0]) == [told.tokens[0]]


def test_concurrent_requests_get_what_each_gets_alone(client: Any, model: Any) -> None:
    def ask(place: int) -> str:
        prompt = PROMPTS[place % len(PROMPTS)]
        asked: Any = {"model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": 5 + place}
        if place % 2:
            return str(client.completions.create(**asked).choices[0].text)
        chunks = client.completions.create(**asked, stream=True)
        return "".join(chunk.choices[0].text for chunk in chunks)

    with ThreadPoolExecutor(18) as pool:
        made = list(pool.map(ask, range(18)))
    assert made == [alone(model, PROMPTS[place % len(PROMPTS)], 5 + place) for place in range(18)]


def test_a_client_that_leaves_a_stream_ends_the_request(client: Any) -> None:
    for _ in range(8):  # more than run at a time, and each would take longer than the client waits
        stream = client.completions.create(
            model="tiny", prompt="the", max_tokens=8000, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        stream.close()
    made = client.completions.create(model="tiny", prompt="the", max_tokens=2, temperature=0)
    assert made.usage.completion_tokens <= 2


def test_embeddings(client: Any, model: Any) -> None:
    made = client.embeddings.create(model="tiny", input=["the cat", "dog"])
    assert [each.index for each in made.data] == [0, 1]
    network, tokenizer = model
    with torch.inference_mode():
        states = network.transformer(**tokenizer("dog", return_tensors="pt")).last_hidden_state[0]
    expected = torch.nn.functional.normalize(states.mean(0), dim=0).tolist()
    assert made.data[1].embedding == pytest.approx(expected, abs=1e-5)
    floats = client.embeddings.create(model="tiny", input="dog", encoding_format="float")
    assert floats.data[0].embedding == pytest.approx(expected, abs=1e-5)
    assert made.usage.prompt_tokens == sum(len(tokenizer(text)["input_ids"]) for text in ("the cat", "dog"))


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ({"model": "none"}, "NotFoundError", "The model 'none' does not exist"),
        ({"model": "tiny:none"}, "NotFoundError", "The model 'tiny:none' does not exist"),
        ({"model": "tiny:../x"}, "NotFoundError", "does not exist"),
        ({"temperature": 3}, "BadRequestError", "temperature"),
        ({"max_tokens": 0}, "BadRequestError", "max_tokens"),
        ({"max_tokens": 9000}, "BadRequestError", "maximum context length is 8192 tokens"),
        ({"prompt": ""}, "BadRequestError", "'prompt' has an empty text"),
        ({"prompt": [100_000]}, "BadRequestError", "not in the model's vocabulary"),
        ({"echo": True}, "BadRequestError", "'echo' is not supported"),
    ],
)
def test_errors(client: Any, asked: dict[str, Any], kind: str, message: str) -> None:
    for stream in (False, True):
        with pytest.raises(getattr(openai, kind), match=message) as caught:
            client.completions.create(**{"model": "tiny", "prompt": "a", "stream": stream, **asked})
        assert caught.value.param in asked
        assert caught.value.body["message"]


def test_errors_of_chats_and_of_what_is_no_request(client: Any, url: str) -> None:
    image: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(openai.BadRequestError, match="not a part of type 'image_url'"):
        client.chat.completions.create(model="tiny", messages=image)
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model="tiny", messages=[])
    answer = httpx.post(f"{url}/completions", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(f"{url}/other").json()["error"]["code"] == 404
    assert httpx.get(f"{url}/completions").status_code == 405


def test_an_adapter_by_name(client: Any, model: Any, folder: str, adapters: Path) -> None:
    peft = pytest.importorskip("peft")
    assert [card.id for card in client.models.list()] == ["tiny", "tiny:tuned"]
    assert client.models.retrieve("tiny:tuned").id == "tiny:tuned"
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tuned = peft.PeftModel.from_pretrained(base, str(adapters / "tuned")).eval()
    made = client.completions.create(model="tiny:tuned", prompt="the cat", temperature=0, max_tokens=12)
    assert made.choices[0].text == alone((tuned, model[1]), "the cat", 12)
    assert made.model == "tiny:tuned"
    plain = client.completions.create(model="tiny", prompt="the cat", temperature=0, max_tokens=12)
    assert plain.choices[0].text == alone(model, "the cat", 12) != made.choices[0].text


def test_a_handle(url: str, model: Any) -> None:
    handle = serve.get_deployment_handle("LLMServer:tiny", "llm").options(stream=True)
    request = ChatCompletionRequest(messages=MESSAGES, temperature=0, max_tokens=4)
    (answer,) = handle.chat.remote(request)
    assert answer.choices[0].message.content == alone(model, CHAT, 4)
