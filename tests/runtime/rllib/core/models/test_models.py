"""Networks and the catalog that chooses them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.core.models.base import ACTOR, CRITIC, ENCODER_OUT
from runtime.rllib.core.models.catalog import Catalog, default_filters
from runtime.rllib.core.models.configs import (
    ActorCriticEncoderConfig,
    CNNEncoderConfig,
    CNNTransposeHeadConfig,
    FreeLogStdMLPHeadConfig,
    MLPEncoderConfig,
    MLPHeadConfig,
    RecurrentEncoderConfig,
)
from runtime.rllib.core.models.layers import same_padding
from runtime.rllib.core.rl_module.default_model_config import DefaultModelConfig, complete_model_config
from runtime.rllib.utils.error import UnsupportedSpaceException

Box = gym.spaces.Box


def catalog(
    observation_space: gym.Space, action_space: gym.Space | None = None, **settings: object
) -> Catalog:
    return Catalog(observation_space, action_space or gym.spaces.Discrete(2), complete_model_config(settings))


@pytest.mark.parametrize("size", [10, 42, 64, 84, 96])
def test_default_convolutions_fit_their_images(size: int) -> None:
    encoder = catalog(Box(0, 1, (size, size, 2))).build_encoder("torch")
    config = CNNEncoderConfig(
        input_dims=(size, size, 2), cnn_filter_specifiers=default_filters((size, size, 2))
    )
    features = encoder({"obs": torch.rand(2, size, size, 2)})[ENCODER_OUT]
    assert features.shape == (2, *config.output_dims)
    assert features.std() > 0


@pytest.mark.parametrize(
    "filters", [[[4, 3, 2]], [[4, [3, 2], [1, 2], "valid"], [2, 5, 3]], [[1, 4, 4, "valid"]]]
)
def test_sizes_of_convolutions_are_what_they_say(filters: list[list[object]]) -> None:
    config = CNNEncoderConfig(input_dims=(17, 13, 3), cnn_filter_specifiers=filters, flatten_at_end=False)
    encoder = config.build("torch")
    images = torch.randint(0, 255, (2, 5, 17, 13, 3), dtype=torch.uint8)
    assert encoder({"obs": images})[ENCODER_OUT].shape == (2, 5, *config.output_dims)


def test_same_padding_gives_the_rounded_up_quotient() -> None:
    for size in range(3, 20):
        for kernel in (1, 2, 3, 4):
            for stride in (1, 2, 3):
                padded = size + sum(same_padding(size, kernel, stride))
                assert (padded - kernel) // stride + 1 == -(-size // stride)


def test_wrong_convolutions_are_named() -> None:
    with pytest.raises(ValueError, match="leave nothing"):
        CNNEncoderConfig(input_dims=(4, 4, 1), cnn_filter_specifiers=[[2, 8, 1, "valid"]]).build("torch")
    with pytest.raises(ValueError, match="padding"):
        CNNEncoderConfig(input_dims=(4, 4, 1), cnn_filter_specifiers=[[2, 2, 1, "full"]]).build("torch")
    with pytest.raises(ValueError, match="no default convolutions"):
        catalog(Box(0, 255, (210, 160, 3), np.uint8))


def test_transposed_convolutions_multiply_the_size() -> None:
    config = CNNTransposeHeadConfig(input_dims=(5,), cnn_transpose_filter_specifiers=[[8, 4, 2], [3, 5, 2]])
    assert config.output_dims == (16, 16, 3)
    assert config.build("torch")(torch.rand(7, 5)).shape == (7, 16, 16, 3)


def test_settings_reach_the_layers() -> None:
    encoder = catalog(
        Box(-1, 1, (3,)),
        fcnet_hiddens=[7, 5],
        fcnet_activation="ReLU",
        fcnet_use_layernorm=True,
        fcnet_kernel_initializer="orthogonal_",
        fcnet_kernel_initializer_kwargs={"gain": 2.0},
        fcnet_bias_initializer=torch.nn.init.zeros_,
    ).build_encoder("torch")
    layers = list(encoder.net.mlp)
    assert [type(layer).__name__ for layer in layers] == ["Linear", "LayerNorm", "ReLU"] * 2
    torch.testing.assert_close(layers[3].weight @ layers[3].weight.T, 4.0 * torch.eye(5), atol=1e-4, rtol=0)
    assert not layers[0].bias.any()
    assert encoder.get_num_parameters() == (4 * 7 + 14 + 8 * 5 + 10, 0)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ValueError, match="activation"):
        catalog(Box(-1, 1, (3,)), fcnet_activation="tahn").build_encoder("torch")
    with pytest.raises(ValueError, match="initializer"):
        catalog(Box(-1, 1, (3,)), fcnet_kernel_initializer="xavier").build_encoder("torch")
    with pytest.raises(ValueError, match="fcnet_hiddens"):
        complete_model_config({"fcnet_hidden": [3]})
    with pytest.raises(ValueError, match="framework"):
        catalog(Box(-1, 1, (3,))).build_encoder("tf2")


def test_earlier_actions_and_rewards_come_from_a_connector() -> None:
    with pytest.raises(ValueError, match="PrevActionsPrevRewards"):
        catalog(Box(-1, 1, (3,)), use_lstm=True, lstm_use_prev_action=True)


def test_other_settings_are_kept_for_custom_networks() -> None:
    assert complete_model_config({"my_own": 3})["my_own"] == 3
    assert complete_model_config(DefaultModelConfig(use_lstm=True))["use_lstm"] is True
    assert complete_model_config(None)["fcnet_hiddens"] == [256, 256]


@pytest.mark.parametrize(
    "space", [gym.spaces.Discrete(3), gym.spaces.Dict(a=Box(-1, 1, (2,))), Box(-1, 1, (2, 2))]
)
def test_spaces_without_a_default_encoder_name_the_connector(space: gym.Space) -> None:
    with pytest.raises(ValueError, match="FlattenObservations"):
        catalog(space)


@pytest.mark.parametrize(
    ("space", "outputs"),
    [
        (gym.spaces.Discrete(3), 3),
        (gym.spaces.MultiDiscrete([3, 4]), 7),
        (Box(-1, 1, (2, 3)), 12),
        (gym.spaces.Tuple([gym.spaces.Discrete(3), Box(-1, 1, (2,))]), 7),
        (gym.spaces.Dict(b=gym.spaces.Discrete(3), a=gym.spaces.Dict(c=gym.spaces.MultiDiscrete([2, 2]))), 7),
    ],
)
def test_samples_of_the_chosen_distribution_are_in_the_action_space(space: gym.Space, outputs: int) -> None:
    cls = catalog(Box(-1, 1, (2,)), space).get_action_dist_cls("torch")
    assert cls.required_input_dim(space) == outputs
    distribution = cls.from_logits(torch.full((1, outputs), -4.0))
    sample = distribution.sample()

    def first(value: object) -> object:
        if isinstance(value, dict):
            return {key: first(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(first(part) for part in value)
        array = value[0].numpy()  # type: ignore[index]
        return array.clip(-1, 1) if array.dtype == np.float32 else array

    action = first(sample)
    if isinstance(space, Box):
        action = np.asarray(action).reshape(space.shape)
    assert space.contains(action)
    assert distribution.logp(sample).shape == (1,)


@pytest.mark.parametrize("space", [gym.spaces.MultiBinary(3), Box(0, 3, (2,), np.int64)])
def test_action_spaces_without_a_distribution_are_errors(space: gym.Space) -> None:
    with pytest.raises(UnsupportedSpaceException, match="action space"):
        catalog(Box(-1, 1, (2,)), space).get_action_dist_cls("torch")


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_sequence_at_once_is_the_same_as_step_by_step(kind: str) -> None:
    config = RecurrentEncoderConfig(
        input_dims=(3,),
        recurrent_layer_type=kind,
        hidden_dim=4,
        num_layers=2,
        tokenizer_config=MLPEncoderConfig(input_dims=(3,), hidden_layer_dims=[6]),
    )
    encoder = config.build("torch")
    obs = torch.rand(2, 5, 3)
    start = {key: value.expand(2, 2, 4) for key, value in encoder.get_initial_state().items()}
    whole = encoder({"obs": obs, "state_in": start})
    state, steps = start, []
    for t in range(5):
        out = encoder({"obs": obs[:, t : t + 1], "state_in": state})
        state = out["state_out"]
        steps.append(out[ENCODER_OUT])
    torch.testing.assert_close(torch.cat(steps, 1), whole[ENCODER_OUT])
    for key, value in whole["state_out"].items():
        torch.testing.assert_close(state[key], value)
    with pytest.raises(ValueError, match="state_in"):
        encoder({"obs": obs})


def test_separate_encoders_have_separate_features_and_inference_skips_the_critic() -> None:
    base = MLPEncoderConfig(input_dims=(3,), hidden_layer_dims=[4])
    encoder = ActorCriticEncoderConfig(base_encoder_config=base, shared=False).build("torch")
    features = encoder({"obs": torch.rand(2, 3)})[ENCODER_OUT]
    assert not torch.equal(features[ACTOR], features[CRITIC])
    assert set(encoder({"obs": torch.rand(2, 3)}, inference_only=True)[ENCODER_OUT]) == {ACTOR}
    small = ActorCriticEncoderConfig(base_encoder_config=base, shared=False, inference_only=True).build(
        "torch"
    )
    assert not hasattr(small, "critic_encoder")


def test_heads_clip_log_standard_deviations() -> None:
    head = MLPHeadConfig(
        input_dims=(3,), hidden_layer_dims=[], output_layer_dim=4, clip_log_std=True, log_std_clip_param=0.5
    ).build("torch")
    outputs = head(torch.full((2, 3), 1e3))
    assert outputs[:, :2].abs().min() > 0.5
    assert outputs[:, 2:].abs().max() <= 0.5


def test_free_log_standard_deviations_are_parameters() -> None:
    head = FreeLogStdMLPHeadConfig(input_dims=(3,), hidden_layer_dims=[], output_layer_dim=4).build("torch")
    assert head(torch.rand(2, 3))[:, 2:].equal(torch.zeros(2, 2))
    head(torch.rand(2, 3)).sum().backward()
    assert head.log_std.grad.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="even"):
        FreeLogStdMLPHeadConfig(input_dims=(3,), output_layer_dim=3).build("torch")
