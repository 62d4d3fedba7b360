"""A model whose errors are rewards: it is curious about what it cannot predict.

Pathak et al., "Curiosity-driven exploration by self-supervised prediction", 2017, https://arxiv.org/abs/1705.05363.
"""

from __future__ import annotations

from typing import Any

import torch

from ....core.columns import Columns
from ....core.models.catalog import Catalog
from ....core.models.torch.primitives import TorchMLP
from ....core.rl_module.apis.self_supervised_loss_api import SelfSupervisedLossAPI
from ....core.rl_module.torch.torch_rl_module import TorchRLModule
from ....utils.spaces.space_utils import get_base_struct_from_space, get_dummy_batch_for_space
from ....utils.torch_utils import convert_to_torch_tensor, flatten_inputs_to_1d_tensor

INTRINSIC_REWARDS = "intrinsic_rewards"


class IntrinsicCuriosityModel(TorchRLModule, SelfSupervisedLossAPI):
    """Predicts the features of the next observation from features and action; the squared error is the reward.

    Features are those which an inverse model needs to tell the action from two observations, so that what actions
    cannot influence arouses no curiosity.

    Settings in `model_config`: `feature_dim` (288) and `feature_net_hiddens` ((256, 256)) of the features,
    `inverse_net_hiddens` and `forward_net_hiddens` ((256,)) of the two models, and activations
    `feature_net_activation`, `inverse_net_activation` and `forward_net_activation` ("relu").
    In `config.learner_config_dict`: `forward_loss_weight` (0.2), the forward model's share of the loss.
    """

    def setup(self) -> None:
        config = self.model_config
        if self.observation_space.shape is None or len(self.observation_space.shape) != 1:
            raise ValueError(
                f"The curiosity model takes Box observations of one dimension, not {self.observation_space}. Flatten "
                "them by a connector"
            )
        self._dist_cls = Catalog._get_dist_cls_from_action_space(self.action_space, framework="torch")
        self._action_tree = get_base_struct_from_space(self.action_space)
        example = convert_to_torch_tensor(
            get_dummy_batch_for_space(self.action_space, 1, fill_value="random")
        )
        action_dim = flatten_inputs_to_1d_tensor(example, self._action_tree).shape[-1]
        features = int(config.get("feature_dim", 288))
        self._feature_net = TorchMLP(
            input_dim=self.observation_space.shape[0],
            hidden_layer_dims=config.get("feature_net_hiddens", (256, 256)),
            hidden_layer_activation=config.get("feature_net_activation", "relu"),
            output_dim=features,
        )
        self._inverse_net = TorchMLP(
            input_dim=2 * features,
            hidden_layer_dims=config.get("inverse_net_hiddens", (256,)),
            hidden_layer_activation=config.get("inverse_net_activation", "relu"),
            output_dim=self._dist_cls.required_input_dim(self.action_space),
        )
        self._forward_net = TorchMLP(
            input_dim=features + action_dim,
            hidden_layer_dims=config.get("forward_net_hiddens", (256,)),
            hidden_layer_activation=config.get("forward_net_activation", "relu"),
            output_dim=features,
        )

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        raise NotImplementedError("A curiosity model does not act. Set learner_only=True in its RLModuleSpec")

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Features of both observations, the predicted ones, and "intrinsic_rewards" [batch].

        Args:
            batch: "obs", "new_obs" and "actions".
        """
        count = len(batch[Columns.OBS])
        both = self._feature_net(torch.cat((batch[Columns.OBS], batch[Columns.NEXT_OBS])))
        now, following = both[:count], both[count:]
        actions = flatten_inputs_to_1d_tensor(batch[Columns.ACTIONS], self._action_tree)
        # The features are learned by the inverse model alone: else they would become easy to predict, or constant.
        predicted = self._forward_net(torch.cat((now.detach(), actions), -1))
        errors = 0.5 * (predicted - following.detach()).square().sum(-1)
        return {
            "features": now,
            "next_features": following,
            "predicted_next_features": predicted,
            INTRINSIC_REWARDS: errors,
        }

    def compute_self_supervised_loss(
        self,
        *,
        learner: Any,
        module_id: str,
        config: Any,
        batch: dict[str, Any],
        fwd_out: dict[str, Any],
        **kwargs: Any,
    ) -> Any:
        weight = config.learner_config_dict.get("forward_loss_weight", 0.2)
        forward_loss = fwd_out[INTRINSIC_REWARDS].mean()
        outputs = self._inverse_net(torch.cat((fwd_out["features"], fwd_out["next_features"]), -1))
        inverse_loss = -self._dist_cls.from_logits(outputs).logp(batch[Columns.ACTIONS]).mean()
        learner.metrics.log_dict(
            {
                "mean_intrinsic_rewards": forward_loss.detach(),
                "forward_loss": forward_loss.detach(),
                "inverse_loss": inverse_loss.detach(),
            },
            key=module_id,
            window=1,
        )
        return weight * forward_loss + (1 - weight) * inverse_loss
