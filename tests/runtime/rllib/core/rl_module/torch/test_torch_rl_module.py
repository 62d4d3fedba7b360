"""Modules that users write, PPO's default module, and their states."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime import cloudpickle
from runtime.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from runtime.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian
from runtime.rllib.core.models.configs import MLPEncoderConfig
from runtime.rllib.core.rl_module.apis import ValueFunctionAPI
from runtime.rllib.core.rl_module.default_model_config import DefaultModelConfig, complete_model_config
from runtime.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from runtime.rllib.core.rl_module.torch import TorchRLModule
from runtime.rllib.core.rl_module.torch.torch_compile_config import TorchCompileConfig
from runtime.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

Box, Discrete = gym.spaces.Box, gym.spaces.Discrete
CARTPOLE = {"observation_space": Box(-1, 1, (4,), np.float32), "action_space": Discrete(2)}
SMALL = {"fcnet_hiddens": [8, 8], "vf_share_layers": False}


class Custom(TorchRLModule, ValueFunctionAPI):
    """As in the guides: layers made in setup() from model_config."""

    def setup(self) -> None:
        hidden = self.model_config.get("hidden_dim", 16)
        self.base = torch.nn.Sequential(
            torch.nn.Linear(self.observation_space.shape[0], hidden), torch.nn.ReLU()
        )
        self.logits = torch.nn.Linear(hidden, self.action_space.n)
        self.values = torch.nn.Linear(hidden, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.logits(self.base(batch[Columns.OBS]))}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        return self.values(self.base(batch[Columns.OBS])).squeeze(-1)


def ppo(model_config: Any = None, **kwargs: Any) -> DefaultPPOTorchRLModule:
    module = RLModuleSpec(
        DefaultPPOTorchRLModule, model_config=model_config or SMALL, **{**CARTPOLE, **kwargs}
    ).build()
    assert isinstance(module, DefaultPPOTorchRLModule)
    return module


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def batched(state: Any, size: int) -> Any:
    if isinstance(state, dict):
        return {key: batched(value, size) for key, value in state.items()}
    return state.expand(size, *state.shape)


def test_a_custom_module_acts_and_learns() -> None:
    module = RLModuleSpec(Custom, model_config={"hidden_dim": 5}, **CARTPOLE).build()
    batch = {Columns.OBS: torch.rand(3, 4)}
    assert module.base[0].out_features == 5
    assert not module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS].requires_grad
    assert not module.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS].requires_grad
    assert module.forward_train(batch)[Columns.ACTION_DIST_INPUTS].requires_grad
    assert module(batch)[Columns.ACTION_DIST_INPUTS].shape == (3, 2)
    assert module.get_exploration_action_dist_cls() is TorchCategorical
    assert not module.is_stateful()
    assert module.unwrapped() is module


def test_a_module_made_without_a_specification_keeps_its_configuration() -> None:
    config = DefaultModelConfig(fcnet_hiddens=[3])
    module = DefaultPPOTorchRLModule(model_config=config, **CARTPOLE)
    assert module.model_config is config
    built = RLModuleSpec(DefaultPPOTorchRLModule, model_config=config, **CARTPOLE).build()
    assert built.model_config == dataclasses.asdict(config)


def test_unknown_arguments_and_missing_settings_are_errors() -> None:
    with pytest.raises(TypeError, match="observation_spaec"):
        Custom(observation_spaec=None)
    with pytest.raises(ValueError, match="observation_space"):
        RLModuleSpec(Custom, action_space=Discrete(2)).build()
    with pytest.raises(ValueError, match="module_class"):
        RLModuleSpec(**CARTPOLE).build()
    with pytest.raises(NotImplementedError, match="_forward"):
        TorchRLModule(**CARTPOLE).forward_train({})
    with pytest.raises(ValueError, match="Did you mean 'fcnet_hiddens'"):
        ppo({"fcnet_hidden": [3]})


def test_catalogs_choose_the_networks() -> None:
    class Wide(PPOCatalog):
        @classmethod
        def get_tokenizer_config(
            cls, observation_space: Any, model_config_dict: dict[str, Any]
        ) -> MLPEncoderConfig:
            return MLPEncoderConfig(input_dims=observation_space.shape, hidden_layer_dims=[33])

    assert ppo(catalog_class=Wide).pi.net.mlp[0].in_features == 33

    class Prepared(DefaultPPOTorchRLModule):
        def setup(self) -> None:
            self.catalog = Wide(
                self.observation_space, self.action_space, complete_model_config(self.model_config)
            )
            super().setup()

    assert Prepared(model_config=SMALL, **CARTPOLE).vf.net.mlp[0].in_features == 33


def test_a_module_without_a_framework_has_no_default_distribution() -> None:
    with pytest.raises(NotImplementedError, match="action_dist_cls"):
        RLModule(**CARTPOLE).get_train_action_dist_cls()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lstm", [True, False])
def test_values_with_and_without_embeddings_are_the_same(shared: bool, lstm: bool) -> None:
    module = ppo({**SMALL, "vf_share_layers": shared, "use_lstm": lstm, "lstm_cell_size": 6})
    batch: dict[str, Any] = {Columns.OBS: torch.rand(3, 5, 4) if lstm else torch.rand(3, 4)}
    if lstm:
        batch[Columns.STATE_IN] = batched(module.get_initial_state(), 3)
    out = module.forward_train(batch)
    values = module.compute_values(batch)
    assert values.shape == ((3, 5) if lstm else (3,))
    torch.testing.assert_close(values, module.compute_values(batch, out[Columns.EMBEDDINGS]))
    acting = module.forward_exploration(batch)
    torch.testing.assert_close(acting[Columns.ACTION_DIST_INPUTS], out[Columns.ACTION_DIST_INPUTS])
    assert module.is_stateful() is lstm
    assert (Columns.STATE_OUT in acting) is lstm


def test_the_state_of_an_lstm_goes_on_for_actor_and_critic() -> None:
    module = ppo({**SMALL, "use_lstm": True, "lstm_cell_size": 6}, inference_only=True)
    state = batched(module.get_initial_state(), 2)
    for _ in range(2):
        before = state
        state = module.forward_exploration({Columns.OBS: torch.rand(2, 1, 4), Columns.STATE_IN: before})[
            "state_out"
        ]
        assert not torch.equal(before["critic"]["h"], state["critic"]["h"])
    assert state["actor"]["c"].shape == (2, 1, 6)


def test_images_and_free_standard_deviations() -> None:
    module = ppo(
        {"conv_filters": [[4, 3, 2], [8, 3, 2]], "head_fcnet_hiddens": [7], "free_log_std": True},
        observation_space=Box(0, 255, (8, 8, 3), np.uint8),
        action_space=Box(-1, 1, (2,)),
    )
    out = module.forward_train({Columns.OBS: torch.randint(0, 255, (3, 8, 8, 3), dtype=torch.uint8)})
    assert out[Columns.ACTION_DIST_INPUTS].shape == (3, 4)
    assert module.get_train_action_dist_cls() is TorchDiagGaussian
    assert "pi.log_std" in module.get_state()
    with pytest.raises(ValueError, match="free_log_std"):
        ppo({"free_log_std": True})


def test_a_module_for_inference_has_only_what_acting_needs() -> None:
    module, small = ppo(), ppo(inference_only=True)
    state = module.get_state(inference_only=True)
    assert state.keys() == small.state_dict().keys()
    assert not any(name.startswith(("vf.", "encoder.critic_encoder.")) for name in state)
    small.set_state(module.get_state())  # the critic's weights are ignored
    batch = {Columns.OBS: torch.rand(3, 4)}
    torch.testing.assert_close(small.forward_inference(batch), module.forward_inference(batch))
    with pytest.raises(RuntimeError, match="inference_only"):
        small.forward_train(batch)


def test_a_state_is_a_copy_and_can_be_set(caplog: pytest.LogCaptureFixture) -> None:
    first, second = ppo(), ppo()
    state = first.get_state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    for value in state.values():
        value.setflags(write=False)  # as the object store gives them
    second.set_state(state)
    assert equal(second.get_state(), state)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.add_(1.0)
    assert equal(first.get_state(), state)
    second.set_state({name: torch.as_tensor(value.copy()) for name, value in state.items()})
    assert equal(second.get_state(), state)
    with caplog.at_level(logging.WARNING):
        second.set_state({name: value for name, value in state.items() if not name.startswith("vf.")})
    assert not caplog.records  # learning alone needs the value head
    second.set_state({name: value for name, value in state.items() if not name.startswith("pi.")})
    assert "pi.net.mlp.0.weight" in caplog.text


def test_a_state_of_another_module_is_an_error() -> None:
    with pytest.raises(ValueError, match="none of the weights"):
        ppo().set_state({"other": np.zeros(3)})
    with pytest.raises(ValueError, match="shape"):
        ppo().set_state(ppo({**SMALL, "fcnet_hiddens": [9, 9]}).get_state())


@pytest.mark.parametrize("use_msgpack", [False, True])
def test_a_module_comes_back_from_its_checkpoint(tmp_path: pathlib.Path, use_msgpack: bool) -> None:
    module = ppo()
    module.save_to_path(tmp_path, use_msgpack=use_msgpack)
    again = RLModule.from_checkpoint(tmp_path)
    assert isinstance(again, DefaultPPOTorchRLModule)
    assert equal(again.get_state(), module.get_state())
    other = ppo()
    other.restore_from_path(tmp_path)
    assert equal(other.get_state(), module.get_state())


def test_a_custom_module_comes_back_from_its_checkpoint(tmp_path: pathlib.Path) -> None:
    module = Custom(model_config={"hidden_dim": 3}, **CARTPOLE)
    module.save_to_path(tmp_path)
    again = Custom.from_checkpoint(tmp_path)
    assert again.model_config == {"hidden_dim": 3}
    assert equal(again.get_state(), module.get_state())


def test_modules_and_specifications_can_be_pickled() -> None:
    spec = RLModuleSpec(DefaultPPOTorchRLModule, model_config=DefaultModelConfig(), **CARTPOLE)
    assert cloudpickle.loads(cloudpickle.dumps(spec)) == spec
    module = ppo(action_space=gym.spaces.Tuple([Discrete(2), Box(-1, 1, (2,))]))
    again = cloudpickle.loads(cloudpickle.dumps(module))
    assert equal(again.get_state(), module.get_state())


def test_a_specification_from_a_module_builds_an_equal_one() -> None:
    spec = RLModuleSpec.from_module(ppo())
    assert RLModuleSpec.from_dict(spec.to_dict()) == spec
    assert spec.build().state_dict().keys() == ppo().state_dict().keys()


def test_specifications_fill_in_or_override_one_another() -> None:
    spec = RLModuleSpec(Custom, action_space=Discrete(2))
    spec.update(RLModuleSpec(DefaultPPOTorchRLModule, **CARTPOLE, inference_only=True), override=False)
    assert spec == RLModuleSpec(Custom, **CARTPOLE)
    spec.update(RLModuleSpec(model_config={"a": 1}, action_space=Discrete(3)))
    assert spec == RLModuleSpec(Custom, CARTPOLE["observation_space"], Discrete(3), model_config={"a": 1})
    with pytest.raises(ValueError, match="RLModuleSpec"):
        spec.update({})  # type: ignore[arg-type]


def test_one_module_as_a_module_of_several() -> None:
    module = ppo()
    multi = module.as_multi_rl_module()
    assert multi["default_policy"] is module
    assert list(RLModuleSpec.from_module(module).as_multi_rl_module_spec().rl_module_specs) == [
        "default_policy"
    ]


def test_masked_actions_are_never_taken(tmp_path: pathlib.Path) -> None:
    space = gym.spaces.Dict(action_mask=Box(0, 1, (3,)), observations=Box(-1, 1, (4,)))
    module = ActionMaskingTorchRLModule(observation_space=space, action_space=Discrete(3), model_config=SMALL)
    mask = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    batch = {Columns.OBS: {"action_mask": mask, "observations": torch.rand(2, 4)}}
    for forward in (module.forward_inference, module.forward_exploration, module.forward_train):
        dist = module.get_train_action_dist_cls().from_logits(forward(batch)[Columns.ACTION_DIST_INPUTS])
        actions = dist.sample(sample_shape=(200,))
        assert set(actions[:, 0].tolist()) <= {0, 2}
        assert set(actions[:, 1].tolist()) == {1}
        assert torch.isfinite(dist.entropy()).all()
    assert module.compute_values(batch).shape == (2,)
    module.save_to_path(tmp_path)
    again = RLModule.from_checkpoint(tmp_path)
    assert again.observation_space == space
    with pytest.raises(ValueError, match="action_mask"):
        ActionMaskingTorchRLModule(observation_space=Box(-1, 1, (4,)), action_space=Discrete(3))
    with pytest.raises(ValueError, match="action_mask"):
        module.forward_inference({Columns.OBS: torch.rand(2, 4)})


def test_compiled_modules_give_the_same() -> None:
    module = Custom(model_config={"hidden_dim": 3}, **CARTPOLE)
    batch = {Columns.OBS: torch.rand(3, 4)}
    expected = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    names = set(module.state_dict())
    module.compile(TorchCompileConfig(torch_dynamo_backend="eager"))
    torch.testing.assert_close(module.forward_train(batch)[Columns.ACTION_DIST_INPUTS], expected)
    torch.testing.assert_close(module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS], expected.detach())
    assert set(module.state_dict()) == names
