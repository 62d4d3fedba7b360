"""What the options of tasks and actors ask of a node."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._api.options import ACTOR, TASK, validate
from runtime._api.scheduling import actor_request, task_request
from runtime._core.labels import EXISTS, MISSING
from runtime._wire.messages.base import ResourceRequest
from runtime.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

NODE = "ab" * 28


def request_of(**options: Any) -> ResourceRequest:
    validate(options, TASK)
    return task_request(options, "f")[0]


def test_a_task_takes_one_cpu_by_default() -> None:
    assert request_of().resources == {"CPU": 10_000}


def test_everything_that_was_asked_for() -> None:
    request = request_of(num_cpus=2, num_gpus=0.5, memory=100, resources={"custom": 3})
    assert request.resources == {"CPU": 20_000, "GPU": 5_000, "memory": 1_000_000, "custom": 30_000}


def test_nothing_at_all() -> None:
    assert request_of(num_cpus=0).resources == {}


def test_an_accelerator_type_is_a_trace_of_a_resource() -> None:
    assert request_of(accelerator_type="A100").resources["accelerator_type:A100"] == 10


@pytest.mark.parametrize(
    ("options", "placed", "held"),
    [
        ({}, {"CPU": 1}, {}),
        ({"num_cpus": 1}, {"CPU": 1}, {"CPU": 1}),
        ({"num_cpus": 0}, {}, {}),
        ({"num_gpus": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}),
        ({"num_gpus": 0}, {"CPU": 1}, {"CPU": 1}),
        ({"num_cpus": 0, "num_gpus": 1}, {"GPU": 1}, {"GPU": 1}),
        ({"resources": {"custom": 1}}, {"CPU": 1, "custom": 1}, {"CPU": 1, "custom": 1}),
        ({"resources": {}}, {"CPU": 1}, {}),
        ({"memory": 100}, {"CPU": 1, "memory": 100}, {"memory": 100}),
    ],
)
def test_what_an_actor_takes_and_keeps(
    options: dict[str, Any], placed: dict[str, int], held: dict[str, int]
) -> None:
    validate(options, ACTOR)
    request, _, kept = actor_request(options, "A")
    assert request.resources == {name: amount * 10_000 for name, amount in placed.items()}
    assert kept == {name: amount * 10_000 for name, amount in held.items()}


@pytest.mark.parametrize(
    "options",
    [
        {"resources": {"TPU": 3}},
        {"resources": {"TPU": 0.5}},
        {"resources": {"neuron_cores": 0.5}},
        {"resources": {"HPU": 1.5}},
        {"num_gpus": 1.5},
        {"resources": {"custom": 0.00001}},
        {"num_cpus": 0.00001},
        {"resources": {"custom": -1}},
    ],
)
def test_amounts_that_no_node_has(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        request_of(**options)


# ---------------------------------------------------------------- strategies


@pytest.mark.parametrize("kind", ["DEFAULT", "SPREAD"])
def test_strategies_by_name(kind: str) -> None:
    assert request_of(scheduling_strategy=kind).strategy.kind == kind


@pytest.mark.parametrize("value", ["spread", "PACK"])
def test_unknown_strategies(value: str) -> None:
    with pytest.raises(ValueError, match="Invalid scheduling_strategy value"):
        request_of(scheduling_strategy=value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("scheduling_strategy", 5),
        ("label_selector", ["a"]),
        ("fallback_strategy", {"label_selector": {}}),
        ("accelerator_type", 1),
        ("placement_group", 1),
        ("placement_group_bundle_index", "0"),
        ("placement_group_capture_child_tasks", 1),
    ],
)
def test_wrong_types(option: str, value: Any) -> None:
    with pytest.raises(TypeError, match=option):
        request_of(**{option: value})


@pytest.mark.parametrize("soft", [True, False])
def test_affinity_to_a_node(soft: bool) -> None:
    strategy = request_of(scheduling_strategy=NodeAffinitySchedulingStrategy(NODE, soft)).strategy
    assert strategy.kind == "NODE_AFFINITY"
    assert strategy.node_id == bytes.fromhex(NODE)
    assert strategy.soft is soft
    assert strategy.busy == "WAIT"


def test_affinity_to_a_busy_node() -> None:
    spill = NodeAffinitySchedulingStrategy(NODE, True, _spill_on_unavailable=True)
    assert request_of(scheduling_strategy=spill).strategy.busy == "SPILL"
    fail = NodeAffinitySchedulingStrategy(NODE, False, _fail_on_unavailable=True)
    assert request_of(scheduling_strategy=fail).strategy.busy == "FAIL"


@pytest.mark.parametrize("node_id", ["zz", "", "ab", "ff" * 28, "ab" * 27])
def test_what_no_node_is_called(node_id: str) -> None:
    with pytest.raises(ValueError, match="Invalid node_id"):
        NodeAffinitySchedulingStrategy(node_id, soft=False)


def test_contradictions_of_an_affinity() -> None:
    with pytest.raises(ValueError, match="_spill_on_unavailable cannot be set when soft is False"):
        NodeAffinitySchedulingStrategy(NODE, False, _spill_on_unavailable=True)
    with pytest.raises(ValueError, match="_fail_on_unavailable cannot be set when soft is True"):
        NodeAffinitySchedulingStrategy(NODE, True, _fail_on_unavailable=True)


def test_labels_select_nodes() -> None:
    request = request_of(label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "!b"}}])
    assert request.strategy.labels == {"zone": "a"}
    assert request.strategy.fallbacks == [{"zone": "!b"}]


def test_operators_are_conditions() -> None:
    hard = {"a": In("x", "y"), "b": NotIn("z"), "c": Exists(), "d": DoesNotExist()}
    strategy = request_of(scheduling_strategy=NodeLabelSchedulingStrategy(hard, soft={"e": In("x")})).strategy
    assert strategy.labels == {"a": "in(x,y)", "b": "!in(z)", "c": EXISTS, "d": MISSING}
    assert strategy.preferred == {"e": "in(x)"}


def test_labels_of_both_kinds() -> None:
    both = NodeLabelSchedulingStrategy({"a": Exists()})
    assert request_of(scheduling_strategy=both, label_selector={"b": "c"}).strategy.labels == {
        "a": EXISTS,
        "b": "c",
    }
    with pytest.raises(ValueError, match="leave them out of one"):
        request_of(scheduling_strategy=both, label_selector={"a": "c"})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: In(123), "Type of value in position 0 for the In operator must be str"),
        (lambda: NotIn("a", 1), "Type of value in position 1 for the NotIn operator must be str"),
        (lambda: In(), "The variadic parameter of the In operator must be a non-empty tuple"),
        (lambda: NotIn(), "The variadic parameter of the NotIn operator must be a non-empty tuple"),
        (lambda: NodeLabelSchedulingStrategy(None, soft=["1"]), "The soft parameter must be a map"),
        (
            lambda: NodeLabelSchedulingStrategy({1: "1"}),
            "The map key of the hard parameter must be of type str",
        ),
        (lambda: NodeLabelSchedulingStrategy({"a": "1"}), "must be one of the `In`, `NotIn`, `Exists`"),
        (lambda: NodeLabelSchedulingStrategy({}), "cannot both be empty"),
    ],
)
def test_wrong_operators(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_bundle_without_a_group() -> None:
    with pytest.raises(ValueError, match="bundle index must be -1"):
        request_of(placement_group_bundle_index=0)
    with pytest.raises(ValueError, match="bundle index must be -1"):
        request_of(scheduling_strategy=PlacementGroupSchedulingStrategy(None, 0))
    assert request_of(scheduling_strategy=PlacementGroupSchedulingStrategy(None)) == request_of()
