from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.algorithms.dreamerv3.torch.dreamerv3_torch_rl_module import DreamerV3TorchRLModule
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec
from runtime.rllib.utils.error import UnsupportedSpaceException

Box = gym.spaces.Box
VECTOR, IMAGE = Box(-9, 9, (4,), np.float32), Box(0, 255, (32, 16, 3), np.uint8)
DISCRETE, CONTINUOUS = gym.spaces.Discrete(3), Box(-2, 2, (2,), np.float32)


def make(observation_space: Any = VECTOR, action_space: Any = DISCRETE, **kwargs: Any) -> Any:
    torch.manual_seed(1)
    spec = RLModuleSpec(
        DreamerV3TorchRLModule, observation_space, action_space, model_config={"model_size": "nano"}, **kwargs
    )
    return spec.build()


def samples(space: Any, *shape: int) -> torch.Tensor:
    space.seed(1)
    flat = np.stack([np.asarray(space.sample()) for _ in range(int(np.prod(shape)))])
    return torch.as_tensor(flat.reshape(*shape, *flat.shape[1:]))


def state(module: Any, size: int) -> dict[str, torch.Tensor]:
    return {key: value.expand(size, *value.shape) for key, value in module.get_initial_state().items()}


@pytest.mark.parametrize("observation_space", [VECTOR, IMAGE])
@pytest.mark.parametrize("action_space", [DISCRETE, CONTINUOUS])
def test_it_acts_and_observes_and_dreams(observation_space: Any, action_space: Any) -> None:
    module = make(observation_space, action_space)
    obs = samples(observation_space, 2, 5)
    out = module.forward_exploration({"obs": obs[:, :1], "state_in": state(module, 2)})
    assert action_space.contains(np.clip(out["actions"][0, 0].numpy(), *bounds(action_space)))
    assert {key: value.shape for key, value in out["state_out"].items()} == {
        key: value.shape for key, value in state(module, 2).items()
    }
    batch = {
        "obs": obs,
        "prev_actions": samples(action_space, 2, 5),
        "is_first": torch.zeros(2, 5, dtype=torch.bool),
    }
    seen = module.forward_train(batch)
    features = torch.cat((seen["h"], seen["z"]), -1)
    assert module.world_model.decode(features).shape == obs.shape
    dreams = module.dream(seen["h"].flatten(0, 1), seen["z"].flatten(0, 1), horizon=3)
    assert dreams["features"].shape == (4, 10, module.world_model.feature_dim)
    logp, entropy = module.logp_and_entropy(module.actor(dreams["features"][:-1]), dreams["actions"])
    assert logp.shape == entropy.shape == (3, 10)
    assert torch.isfinite(logp).all()


def bounds(space: Any) -> tuple[Any, Any]:
    return (space.low, space.high) if isinstance(space, Box) else (0, space.n - 1)


def test_acting_step_by_step_has_the_deterministic_states_of_the_sequence() -> None:
    module = make()
    obs = samples(VECTOR, 2, 4)
    torch.manual_seed(5)
    acting, actions = state(module, 2), [torch.zeros(2, dtype=torch.int64)]
    hs = []
    for t in range(4):
        out = module.forward_exploration({"obs": obs[:, t : t + 1], "state_in": acting})
        acting = out["state_out"]
        hs.append(acting["h"])
        actions.append(out["actions"][:, 0])
    first = torch.zeros(2, 4, dtype=torch.bool)
    first[:, 0] = True
    batch = {"obs": obs, "prev_actions": torch.stack(actions[:-1], 1), "is_first": first}
    seen = module.forward_train(batch)
    torch.testing.assert_close(seen["h"][:, 0], hs[0])  # later ones depend on the drawn z


def test_a_sequence_starts_anew_where_an_episode_does() -> None:
    module = make()
    obs, actions = samples(VECTOR, 1, 4), samples(DISCRETE, 1, 4)
    first = torch.tensor([[True, False, True, False]])
    seen = module.forward_train({"obs": obs, "prev_actions": actions, "is_first": first})
    torch.testing.assert_close(seen["h"][:, 0], seen["h"][:, 2])
    assert not torch.allclose(seen["h"][:, 0], seen["h"][:, 1])


def test_dreams_have_no_gradients() -> None:
    module = make()
    dreams = module.dream(torch.zeros(2, 16), torch.zeros(2, 16), horizon=2)
    assert not any(value.requires_grad for value in dreams.values())


def test_continuous_log_probabilities_are_those_of_a_gaussian() -> None:
    module = make(action_space=CONTINUOUS)
    inputs, actions = torch.randn(5, 4), torch.randn(5, 2)
    std = 0.1 + 0.9 * torch.sigmoid(inputs[:, 2:] + 2)
    normal = torch.distributions.Normal(inputs[:, :2].tanh(), std)
    logp, entropy = module.logp_and_entropy(inputs, actions)
    torch.testing.assert_close(logp, normal.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1))
    assert module.best_action(inputs).equal(inputs[:, :2].tanh())


def test_a_module_for_inference_has_no_heads_of_losses() -> None:
    module, small = make(), make(inference_only=True)
    small.set_state(module.get_state(inference_only=True))
    assert not any(
        name in key for key in small.state_dict() for name in ("critic", "decoder", "prior", "reward")
    )
    batch = {"obs": samples(VECTOR, 2, 1), "state_in": state(module, 2)}
    torch.manual_seed(3)
    expected = module.forward_inference(batch)["actions"]
    torch.manual_seed(3)
    assert small.forward_inference(batch)["actions"].equal(expected)


def test_spaces_and_sizes_that_do_not_fit_are_errors() -> None:
    with pytest.raises(UnsupportedSpaceException, match="Discrete and Box"):
        make(action_space=gym.spaces.MultiDiscrete([2, 2]))
    with pytest.raises(ValueError, match="multiples of 16"):
        make(Box(0, 255, (20, 16, 3), np.uint8))
    with pytest.raises(ValueError, match="FlattenObservations"):
        make(gym.spaces.Discrete(4))
    with pytest.raises(ValueError, match="nano"):
        RLModuleSpec(DreamerV3TorchRLModule, VECTOR, DISCRETE, model_config={"model_size": "XXXL"}).build()
