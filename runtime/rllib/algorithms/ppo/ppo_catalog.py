"""The networks of PPO's default module."""

from __future__ import annotations

from typing import Any

from ...core.models.catalog import Catalog, head_config
from ...core.models.configs import ActorCriticEncoderConfig, FreeLogStdMLPHeadConfig, MLPHeadConfig


class PPOCatalog(Catalog):
    """An encoder for actor and critic, a policy head and a value head.

    Override `build_actor_critic_encoder`, `build_pi_head` or `build_vf_head` for other networks.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config_dict: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, model_config_dict)
        self.actor_critic_encoder_config = ActorCriticEncoderConfig(
            base_encoder_config=self._encoder_config, shared=model_config_dict["vf_share_layers"]
        )

    def build_actor_critic_encoder(self, framework: str) -> Any:
        """The encoder of both; it is recurrent with `use_lstm`."""
        return self.actor_critic_encoder_config.build(framework=framework)

    def build_encoder(self, framework: str) -> Any:
        """Not used: PPO has `build_actor_critic_encoder`."""
        raise NotImplementedError("PPO's encoder is made by build_actor_critic_encoder()")

    def build_pi_head(self, framework: str) -> Any:
        """From the actor's features to a distribution's parameters.

        Raises:
            ValueError: `free_log_std` is set, but actions are not Gaussian.
        """
        settings = self._model_config_dict
        dist_cls = self.get_action_dist_cls(framework=framework)
        outputs = dist_cls.required_input_dim(self.action_space)
        from ...core.distribution.torch.torch_distribution import TorchDiagGaussian

        gaussian = issubclass(dist_cls, TorchDiagGaussian)
        if settings["free_log_std"] and not gaussian:
            raise ValueError(
                f"free_log_std needs Gaussian actions (a Box action space), but those of {self.action_space} have "
                f"{dist_cls.__name__}"
            )
        head = FreeLogStdMLPHeadConfig if settings["free_log_std"] else MLPHeadConfig
        return head_config(
            settings,
            self.latent_dims,
            outputs,
            head,
            clip_log_std=gaussian,
            log_std_clip_param=settings["log_std_clip_param"],
        ).build(framework=framework)

    def build_vf_head(self, framework: str) -> Any:
        """From the critic's features to a value."""
        return head_config(self._model_config_dict, self.latent_dims, 1).build(framework=framework)
