from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.rllib._core.gae import advantages_and_targets, next_values
from runtime.rllib._core.vtrace import vtrace
from tests.runtime.rllib._core.making import segments


def plain_loop(
    log_rhos: Any,
    rewards: Any,
    values: Any,
    following: Any,
    discounts: Any,
    last: Any,
    bounds: Any,
    lambda_: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The definition: v_s = V(s) + delta_s + gamma c_s (v_next - V_next), one row after another."""
    clip_rho, clip_c, clip_pg = bounds
    targets, advantages = np.zeros_like(values), np.zeros_like(values)
    for i in reversed(range(len(values))):
        rho = np.exp(log_rhos[i])
        delta = min(clip_rho, rho) * (rewards[i] + discounts[i] * following[i] - values[i])
        correction = 0.0 if last[i] else targets[i + 1] - values[i + 1]
        targets[i] = values[i] + delta + discounts[i] * lambda_ * min(clip_c, rho) * correction
        next_target = following[i] if last[i] else targets[i + 1]
        advantages[i] = min(clip_pg, rho) * (rewards[i] + discounts[i] * next_target - values[i])
    return targets, advantages


def inputs(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    chosen = segments(rng, int(rng.integers(1, 8)), 40)
    rows = int(chosen.lengths.sum())
    values = rng.normal(size=rows)
    discounts = np.full(rows, 0.95)
    discounts[chosen.last_rows[chosen.terminated]] = 0
    last = np.zeros(rows, bool)
    last[chosen.last_rows] = True
    finals = rng.normal(size=len(chosen))
    return {
        "log_rhos": rng.normal(0, 0.5, rows),
        "rewards": rng.normal(size=rows),
        "values": values,
        "next_values": next_values(values, finals, chosen),
        "discounts": discounts,
        "is_last": last,
        "longest": int(chosen.lengths.max()),
        "segments": chosen,
        "finals": finals,
    }


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize(("bounds", "lambda_"), [((1.0, 1.0, 1.0), 1.0), ((2.0, 1.0, 1.5), 0.9)])
def test_it_is_the_plain_loop_with_arrays_and_with_tensors(
    seed: int, bounds: tuple[float, float, float], lambda_: float
) -> None:
    torch = pytest.importorskip("torch")
    given = inputs(seed)
    given.pop("segments"), given.pop("finals")
    longest = given.pop("longest")
    names = ("log_rhos", "rewards", "values", "next_values", "discounts", "is_last")
    expected = plain_loop(*(given[name] for name in names), bounds, lambda_)
    settings = {"clip_rho": bounds[0], "clip_c": bounds[1], "clip_pg_rho": bounds[2], "lambda_": lambda_}
    for convert in (np.asarray, torch.from_numpy):
        result = vtrace(**{name: convert(each) for name, each in given.items()}, longest=longest, **settings)
        for found, wanted in zip(result, expected, strict=True):
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-9, atol=1e-11)


def test_on_policy_it_gives_n_step_returns() -> None:
    given = inputs(4)
    chosen, finals = given.pop("segments"), given.pop("finals")
    given["log_rhos"] = np.zeros_like(given["values"])
    targets, _ = vtrace(**given)
    _, returns = advantages_and_targets(
        given["rewards"], given["values"], finals, chosen, gamma=0.95, lambda_=1.0
    )
    np.testing.assert_allclose(targets, returns)


def test_an_action_that_the_target_policy_never_takes_changes_nothing() -> None:
    given = inputs(5)
    given.pop("segments"), given.pop("finals")
    given["log_rhos"] = np.full_like(given["values"], -np.inf)
    targets, advantages = vtrace(**given)
    np.testing.assert_array_equal(targets, given["values"])
    np.testing.assert_array_equal(advantages, np.zeros_like(advantages))
