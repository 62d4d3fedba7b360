"""Rollouts that are joined."""

from __future__ import annotations

import numpy as np

from runtime.rllib._core.rollout import concatenate
from tests.runtime.rllib._core.making import rollout


def test_infos_stay_at_their_rows_though_a_part_has_none() -> None:
    first, second, third = (rollout(np.random.default_rng(seed), 2, 3) for seed in range(3))
    first.infos = [{"row": row} for row in range(first.rows)]
    third.infos = [{"row": row} for row in range(third.rows)]
    joined = concatenate([first, second, third])
    assert joined.infos == [*first.infos, *({} for _ in range(second.rows)), *third.infos]
    assert concatenate([second, second]).infos is None
    assert (concatenate([second, third]).infos or [])[second.rows :] == third.infos
