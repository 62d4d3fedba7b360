from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from runtime.rllib._core.rollout import Rollout
from runtime.rllib.algorithms.ppo import PPOConfig, PPOTorchLearner
from runtime.rllib.core.learner.training_data import TrainingData, concatenated
from tests.runtime.rllib._core.making import rollout
from tests.runtime.rllib.core.learner.learning import equal, learner, spec, specs, values_of, weights


def rows(seed: int = 0, segments: int = 4) -> Rollout:
    made = rollout(np.random.default_rng(seed), segments, 30)
    made.columns["obs"][:, 0] = 0  # row numbers are no observations for a net
    made.final_obs[:, 0] = 0
    return made


def config(**training: Any) -> PPOConfig:
    return PPOConfig().training(lr=0.01, **training).debugging(seed=1)


def test_an_update_takes_all_minibatches_and_reports_them() -> None:
    data, made = rows(), learner(config(use_kl_loss=False, grad_clip=0.5))
    before = weights(made)
    results = values_of(made.update(rollouts={"default_policy": data}, num_epochs=3, minibatch_size=16))
    own, everything = results["default_policy"], results["__all_modules__"]
    minibatches = -(-data.rows * 3 // 16)
    assert own["num_module_steps_trained"] == everything["num_env_steps_trained"] == minibatches * 16
    assert own["module_train_batch_size_mean"] == 16
    assert own["weights_seq_no"] == 1
    assert own["default_optimizer_learning_rate"] == pytest.approx(0.01)
    for name in ("policy_loss", "vf_loss", "total_loss", "entropy", "vf_explained_var"):
        assert np.isfinite(own[name])
    assert own["gradients_default_optimizer_global_norm"] > 0
    assert not equal(before, weights(made))
    size = sum(each.size for each in before.values())
    for _ in range(2):  # in each result, not only in the first
        assert own["num_trainable_parameters"] == everything["num_trainable_parameters"] == size
        assert own["num_non_trainable_parameters"] == everything["num_non_trainable_parameters"] == 0
        results = values_of(made.update(rollouts={"default_policy": data}))
        own, everything = results["default_policy"], results["__all_modules__"]


def test_the_same_seed_gives_the_same_weights() -> None:
    def trained() -> dict[str, np.ndarray]:
        made = learner(config())
        made.update(
            rollouts={"default_policy": rows()}, num_epochs=2, minibatch_size=16, shuffle_batch_per_epoch=True
        )
        return weights(made)

    assert equal(trained(), trained())


def test_without_a_minibatch_size_an_epoch_is_one_step_over_all_rows() -> None:
    data, made = rows(), learner(config())
    results = values_of(made.update(rollouts={"default_policy": data}, num_epochs=2))
    assert results["default_policy"]["module_train_batch_size_mean"] == data.rows
    assert results["default_policy"]["num_module_steps_trained"] == 2 * data.rows


def test_learning_rates_follow_their_schedule() -> None:
    made = learner(PPOConfig().training(lr=[(0, 0.1), (100, 0.0)]))
    assert made.get_optimizer().param_groups[0]["lr"] == pytest.approx(0.1)
    made.update(rollouts={"default_policy": rows()}, timesteps={"num_env_steps_sampled_lifetime": 75})
    assert made.get_optimizer().param_groups[0]["lr"] == pytest.approx(0.025)


def test_only_policies_to_train_change() -> None:
    made = learner(config().multi_agent(policies={"a", "b"}, policies_to_train=["a"]), specs("a", "b"))
    before = {name: weights(made, name) for name in "ab"}
    results = made.update(rollouts={"a": rows(0), "b": rows(1)}, minibatch_size=16)
    assert not equal(before["a"], weights(made, "a"))
    assert equal(before["b"], weights(made, "b"))
    assert "b" not in results or "policy_loss" not in results["b"]


def test_modules_have_settings_of_their_own() -> None:
    overrides = {"a": PPOConfig.overrides(lr=0.5, grad_clip=1e-9)}
    settings = (
        config().multi_agent(policies={"a", "b"}).rl_module(algorithm_config_overrides_per_module=overrides)
    )
    made = learner(settings, specs("a", "b"))
    assert made.get_optimizer("a").param_groups[0]["lr"] == 0.5
    assert made.get_optimizer("b").param_groups[0]["lr"] == 0.01
    results = values_of(made.update(rollouts={"a": rows(0), "b": rows(1)}))
    assert "gradients_default_optimizer_global_norm" in results["a"]
    assert "gradients_default_optimizer_global_norm" not in results["b"]


def test_modules_come_and_go_with_their_optimizers() -> None:
    made = learner(config().multi_agent(policies={"a"}), specs("a"))
    result = made.add_module(module_id="new", module_spec=spec(), config_overrides={"lr": 0.25})
    assert set(result.rl_module_specs) == {"a", "new"}
    assert made.get_optimizer("new").param_groups[0]["lr"] == 0.25
    before = weights(made, "new")
    made.update(rollouts={"a": rows(0), "new": rows(1)})
    assert not equal(before, weights(made, "new"))
    assert set(made.remove_module("new").rl_module_specs) == {"a"}
    assert "new" not in made.module
    with pytest.raises(KeyError, match="new"):
        made.get_optimizer("new")
    made.update(rollouts={"a": rows(0)})


def test_rows_of_unknown_modules_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\['stranger'\].*policy_mapping_fn"):
        learner(config()).update(rollouts={"stranger": rows()})


def test_exactly_one_form_of_data_is_taken() -> None:
    made = learner(config())
    with pytest.raises(ValueError, match="exactly one"):
        made.update()
    with pytest.raises(ValueError, match="exactly one"):
        made.update(rollouts={"default_policy": rows()}, batch={})


def test_a_learner_that_was_restored_goes_on_as_if_it_had_not_been() -> None:
    one = learner(config())
    one.update(rollouts={"default_policy": rows(0)}, num_epochs=3)
    other = learner(config().debugging(seed=2))
    assert not equal(weights(one), weights(other))
    other.set_state(one.get_state())
    assert equal(weights(one), weights(other))
    for made in (one, other):
        made.update(rollouts={"default_policy": rows(1)}, num_epochs=3)
    assert equal(
        weights(one), weights(other)
    )  # the optimizers' moments and the KL coefficients are the same, too


def test_an_older_state_takes_a_learner_back() -> None:
    made = learner(config())
    made.update(rollouts={"default_policy": rows(0)})
    state, before = made.get_state(), weights(made)
    for seed in (1, 2):
        made.update(rollouts={"default_policy": rows(seed)})
    assert not equal(weights(made), before)
    made.set_state(state)
    assert equal(weights(made), before)


def test_components_of_the_state_can_be_chosen() -> None:
    made = learner(config().multi_agent(policies={"a", "b"}), specs("a", "b"))
    state = made.get_state(components="rl_module/a")
    assert set(state["rl_module"]) == {"a"}
    assert "optimizer" not in state
    assert "rl_module" not in made.get_state(not_components="rl_module")


def test_hooks_are_called_in_order_and_may_change_losses_and_gradients() -> None:
    calls: list[str] = []

    class Hooked(PPOTorchLearner):
        def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
            calls.append("before")
            super().before_gradient_based_update(timesteps=timesteps)

        def compute_loss_for_module(self, **kwargs: Any) -> Any:
            calls.append("loss")
            return super().compute_loss_for_module(**kwargs)

        def postprocess_gradients(self, gradients_dict: Any) -> Any:
            calls.append("gradients")
            return {param: torch.zeros_like(gradient) for param, gradient in gradients_dict.items()}

        def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
            calls.append("after")
            super().after_gradient_based_update(timesteps=timesteps)

    made = learner(config(), learner_class=Hooked)
    before = weights(made)
    made.update(rollouts={"default_policy": rows()}, num_epochs=2)
    assert calls == ["before", "loss", "gradients", "loss", "gradients", "after"]
    assert equal(before, weights(made))  # Adam does not move without gradients


def test_optimizers_of_a_learners_own_share_the_parameters() -> None:
    class TwoOptimizers(PPOTorchLearner):
        def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
            module = self.module[module_id]
            actor = [*module.encoder.actor_encoder.parameters(), *module.pi.parameters()]
            critic = [*module.encoder.critic_encoder.parameters(), *module.vf.parameters()]
            for name, params, lr in (("actor", actor, 0.0), ("critic", critic, 0.1)):
                self.register_optimizer(
                    module_id=module_id,
                    optimizer_name=name,
                    optimizer=torch.optim.SGD(params, lr=lr),
                    params=params,
                    lr_or_lr_schedule=lr,
                )

    made = learner(config(grad_clip=0.5), learner_class=TwoOptimizers)
    before = weights(made)
    results = values_of(made.update(rollouts={"default_policy": rows()}))["default_policy"]
    changed = {name for name, each in weights(made).items() if not np.array_equal(each, before[name])}
    assert changed
    assert all("critic" in name or name.startswith("vf") for name in changed)
    assert {"gradients_actor_global_norm", "gradients_critic_global_norm", "critic_learning_rate"} <= set(
        results
    )


def test_one_optimizer_may_have_the_parameters_of_all_modules() -> None:
    class OneOptimizer(PPOTorchLearner):
        def configure_optimizers(self) -> None:
            params = [param for module in self.module.values() for param in module.parameters()]
            optimizer = torch.optim.SGD(params, lr=0.1)
            self.register_optimizer(optimizer=optimizer, params=params, lr_or_lr_schedule=0.1)

    made = learner(config().multi_agent(policies={"a", "b"}), specs("a", "b"), OneOptimizer)
    before = {name: weights(made, name) for name in "ab"}
    made.update(rollouts={"a": rows(0), "b": rows(1)})
    assert not any(equal(before[name], weights(made, name)) for name in "ab")


def test_a_step_with_gradients_that_are_not_finite_can_be_skipped() -> None:
    class Broken(PPOTorchLearner):
        def compute_loss_for_module(self, **kwargs: Any) -> Any:
            return super().compute_loss_for_module(**kwargs) * float("nan")

    made = learner(config().framework(torch_skip_nan_gradients=True), learner_class=Broken)
    before = weights(made)
    made.update(rollouts={"default_policy": rows()})
    assert equal(before, weights(made))


def test_batches_go_to_the_loss_as_they_are() -> None:
    class Counting(PPOTorchLearner):
        def compute_loss_for_module(self, *, module_id: str, batch: Any, fwd_out: Any, **_: Any) -> Any:
            assert isinstance(batch["obs"], torch.Tensor)
            seen.append((len(batch["obs"]), batch["weights"].dtype, "ids" in batch))
            return (fwd_out["action_dist_inputs"] * batch["weights"][:, None]).sum()

    seen: list[Any] = []
    made = learner(config(), learner_class=Counting)
    columns = {
        "obs": np.zeros((10, 4), np.float32),
        "weights": np.ones(10),  # float64
        "ids": np.array(["a"] * 10),  # no numbers
    }
    made.update(batch={"default_policy": columns}, minibatch_size=5)
    assert seen == [(5, torch.float32, False)] * 2


def test_an_iterator_of_batches_goes_on_in_the_next_update() -> None:
    class Taking(PPOTorchLearner):
        def compute_loss_for_module(self, *, batch: Any, fwd_out: Any, **_: Any) -> Any:
            seen.append(int(batch["obs"][0, 0]))
            return fwd_out["action_dist_inputs"].sum()

    seen: list[int] = []
    made = learner(config(), learner_class=Taking)
    source = [{"default_policy": {"obs": np.full((2, 4), i, np.float32)}} for i in range(3)]
    results = values_of(made.update(data_iterators=[source], num_iters=2))
    assert results["__all_modules__"]["dataset_num_iters_trained"] == 2
    made.update(data_iterators=[source], num_iters=2)
    assert seen == [0, 1, 2, 0]
    with pytest.raises(ValueError, match="num_iters"):
        made.update(data_iterators=[source])


def test_the_latest_loss_is_reported_only_once_per_update() -> None:
    flags: list[bool] = []

    class Watching(PPOTorchLearner):
        def compute_loss_for_module(self, **kwargs: Any) -> Any:
            flags.append(self.logs_losses)
            return super().compute_loss_for_module(**kwargs)

    made = learner(config(), learner_class=Watching)
    made.update(rollouts={"default_policy": rows()}, num_epochs=3)
    assert flags == [False, False, True]
    assert made.logs_losses


def test_building_comes_first() -> None:
    made = PPOTorchLearner(config=config(), module_spec=spec())
    with pytest.raises(RuntimeError, match="build"):
        made.update(rollouts={"default_policy": rows()})


def test_shards_of_batches_and_batches_of_parts() -> None:
    batch = {"a": {"obs": np.arange(7)}, "b": {"obs": np.arange(1)}}
    parts = TrainingData(batch=batch).shard(3)
    joined = concatenated([part.batch for part in parts])
    assert joined["a"]["obs"].tolist() == list(range(7))
    assert [part.batch["b"]["obs"].tolist() for part in parts] == [[0]] * 3  # too few rows to be shared
    with pytest.raises(ValueError, match="3 learners, but 2 batches"):
        TrainingData(batches=[batch, batch]).shard(3)


def test_compiled_learners_make_the_same_steps() -> None:
    compiled = config().framework(torch_compile_learner=True, torch_compile_learner_dynamo_backend="eager")
    one, other = learner(config()), learner(compiled)
    for made in (one, other):
        made.update(rollouts={"default_policy": rows()}, num_epochs=2)
    for name, each in weights(one).items():
        np.testing.assert_allclose(weights(other)[name], each, atol=1e-5)
