from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.config import AutoscalerConfig, Budgets, Deadlines
from autoscaler.provider import NodeType
from tests.autoscaler.build import BIG, SMALL, config


def test_json_keeps_everything() -> None:
    rich = NodeType(
        "rich",
        {"CPU": 4.5},
        {"a": "b"},
        min_workers=1,
        max_workers=3,
        idle_timeout_s=12.0,
        node_config={"deep": {"list": [1, None]}},
        spot=True,
        zones=("z1", "z2"),
        max_price=1.5,
        setup={"commands": ["x"]},
    )
    given = config(
        rich,
        SMALL,
        budgets=Budgets(12.5, 3),
        deadlines=Deadlines(requested_s=7.0),
        config_hashes={"rich": "abc"},
        log_dir="/logs",
    )
    assert AutoscalerConfig.from_json(given.to_json()) == given


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"cluster_id": 3}'])
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        AutoscalerConfig.from_json(text)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (NodeType("x", min_workers=2, max_workers=1), "between 0 and max_workers 1"),
        (NodeType("x", min_workers=-1, max_workers=1), "min_workers -1"),
        (NodeType("head"), "different names"),
    ],
)
def test_node_types_are_checked(kind: NodeType, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config(kind)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head_type": "none"}, "'none' is not among"),
        ({"max_workers": -1}, "max_workers must not be negative"),
        ({"upscaling_speed": -0.5}, "upscaling_speed"),
    ],
)
def test_the_rest_is_checked(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(config(SMALL), **change)  # type: ignore[arg-type]


def test_idle_timeouts_fall_back() -> None:
    own = replace(BIG, idle_timeout_s=3.0)
    never = replace(SMALL, idle_timeout_s=0.0)
    settings = config(own, never, idle_timeout_s=77.0)
    assert settings.idle_timeout_of("big") == 3.0
    assert settings.idle_timeout_of("small") == 0.0
    assert settings.idle_timeout_of("head") == 77.0
    assert settings.idle_timeout_of("removed") == 77.0
