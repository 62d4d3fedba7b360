"""Which replica a request goes to."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from runtime.serve._core.published import Target
from runtime.serve._core.slots import Borrower
from runtime.serve.context import DeploymentID
from runtime.serve.llm.openai_api_models import ChatCompletionRequest
from runtime.serve.llm.request_router import PrefixCacheAffinityRouter, prompt_text
from runtime.serve.request_router import PendingRequest, RequestMetadata, RunningReplica


class Routed:
    """A router with three replicas."""

    def __init__(self, **settings: Any) -> None:
        self.borrower: Borrower[Any] = Borrower(Random(0))
        self.router = PrefixCacheAffinityRouter(DeploymentID("d", "a"))
        self.router.initialize_state(**settings)
        self.replicas = [
            RunningReplica(Target(f"a#d#{name}", b"", "n", "", "", 0, 5), self.borrower) for name in "xyz"
        ]
        self.router.update_replicas(self.replicas)

    def choose(self, prompt: Any) -> list[list[str]]:
        ranks = asyncio.run(self.router.choose_replicas(self.replicas, request(prompt)))
        return [[replica.replica_id.unique_id for replica in rank] for rank in ranks]

    def routed(self, prompt: Any, place: int) -> None:
        self.router.on_request_routed(request(prompt), self.replicas[place].replica_id, None)


def request(prompt: Any) -> PendingRequest:
    return PendingRequest([{"prompt": prompt}], {}, RequestMetadata("r", "i"))


def test_the_replica_with_the_longest_beginning_comes_first() -> None:
    routed = Routed()
    routed.routed("You are helpful. What is 1 + 1?", 1)
    routed.routed("Something else", 0)
    assert routed.choose("You are helpful. What is a cat?") == [["y"], ["x", "z"]]


def test_a_prompt_that_none_has_seen_goes_to_the_replica_with_the_least_text() -> None:
    routed = Routed()
    routed.routed("a" * 50, 0)
    routed.routed("b" * 20, 1)
    assert routed.choose("new") == [["z"], ["x", "y"]]
    routed.routed("c" * 90, 2)
    assert routed.choose("new") == [["y"], ["x", "z"]]
    assert routed.choose("b" + "z" * 99)[0] == ["y"]  # one character in a hundred is below the rate


def test_imbalanced_load_counts_more() -> None:
    routed = Routed(imbalanced_threshold=0)
    routed.routed("abc", 0)
    chosen = {tuple(map(tuple, routed.choose("abc"))) for _ in range(50)}
    assert len(chosen) > 1
    assert all(len(ranks) == 2 for ranks in chosen)


def test_a_replica_that_is_gone_is_forgotten_and_old_prompts_too() -> None:
    routed = Routed(eviction_threshold_chars=20, eviction_target_chars=10)
    routed.routed("a" * 10, 0)
    routed.routed("b" * 10, 1)
    assert routed.choose("a" * 10)[0] == ["x"]
    routed.routed("b" * 11, 1)
    assert routed.choose("a" * 10)[0] == ["x", "z"]  # both have no text now
    routed.router.on_replica_actor_died(routed.replicas[1].replica_id)
    assert routed.choose("b" * 10) == [["x", "y", "z"]]


def test_the_text_of_a_request() -> None:
    chat = ChatCompletionRequest(
        messages=[
            {"role": "system", "content": "be "},
            {"role": "user", "content": [{"type": "text", "text": "kind"}]},
        ]
    )
    pending = PendingRequest([chat], {}, RequestMetadata("r", "i"))
    assert prompt_text(pending) == "be kind"
    assert prompt_text(request(["a", "b"])) == "ab"
    assert prompt_text(request([1, 2])) == ""
    assert prompt_text(None) == ""


@pytest.mark.parametrize("prompt", ["", [1, 2]])
def test_without_text_two_replicas_at_random(prompt: Any) -> None:
    assert len(Routed().choose(prompt)) == 2
