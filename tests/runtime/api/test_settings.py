"""Environment variables with wrong values: errors that name them, where the program sees them."""

from __future__ import annotations

import pytest

from tests.under_test import OWN, init, ray

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not OWN, reason="Ray takes the default, or fails in words of its own"),
]


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("RAY_TASK_MAX_RETRIES", "many", "whole number from -1"),
        ("RAY_DEDUP_LOGS", "perhaps", "1 or 0"),
        ("RAY_DEDUP_LOGS_SKIP_REGEX", "(", "a regular expression"),
        ("CLUSTERCTL_JOB_CONFIG", "[]", "a JSON object"),
    ],
)
def test_init_names_a_wrong_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=variable) as caught:
        ray.init(num_cpus=1)
    assert expected in str(caught.value)
    assert not ray.is_initialized()


def test_a_wrong_key_of_the_system_config_fails_the_start_of_the_node() -> None:
    with pytest.raises(
        RuntimeError, match=r"RAY_memory_usage_threshold is 'much'; expected: number from 0 to 1"
    ):
        ray.init(num_cpus=1, _system_config={"memory_usage_threshold": "much"})
    assert not ray.is_initialized()


def test_a_worker_with_a_wrong_variable_uses_the_default() -> None:
    init(num_cpus=1)

    @ray.remote
    def seven() -> int:
        return 7

    wrong = {"RAY_IGNORE_UNHANDLED_ERRORS": "perhaps", "RAY_max_lineage_bytes": "much"}
    assert ray.get(seven.options(runtime_env={"env_vars": wrong}).remote(), timeout=60) == 7
