"""Default piece: from the parameters of distributions to actions."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2, is_multi_agent


class GetActions(ConnectorV2):
    """Adds actions and their log-probabilities, if the module gave "action_dist_inputs" and no actions.

    Actions are sampled when exploring, else they are the most likely ones.
    """

    is_default_piece: ClassVar[bool] = True

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        if is_multi_agent(episodes):
            for module_id, columns in batch.items():
                _add_actions(columns, rl_module[module_id], bool(explore))
        else:
            _add_actions(batch, rl_module, bool(explore))
        return batch


def _add_actions(columns: dict[str, Any], module: Any, explore: bool) -> None:
    if Columns.ACTIONS in columns or Columns.ACTION_DIST_INPUTS not in columns:
        return
    cls = module.get_exploration_action_dist_cls() if explore else module.get_inference_action_dist_cls()
    distribution = cls.from_logits(columns[Columns.ACTION_DIST_INPUTS])
    if not explore:
        distribution = distribution.to_deterministic()
    actions = distribution.sample()
    columns[Columns.ACTIONS] = actions
    if Columns.ACTION_LOGP not in columns:
        columns[Columns.ACTION_LOGP] = distribution.logp(actions)
