"""Modules by id."""

from __future__ import annotations

import pathlib
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.core.rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec, validate_module_id
from runtime.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from runtime.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

BOX = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
CHOICE = gymnasium.spaces.Discrete(3)


class Linear(TorchRLModule):
    def setup(self) -> None:
        self.layer = torch.nn.Linear(2, 3)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"action_dist_inputs": self.layer(batch["obs"]), "kwargs": kwargs}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"trained": self.layer(batch["obs"])}


class Plain(RLModule):
    """Of another framework."""

    framework = "none"


def spec(inference_only: bool = False, module_class: Any = Linear) -> RLModuleSpec:
    return RLModuleSpec(module_class, BOX, CHOICE, inference_only=inference_only)


def multi(*module_ids: str) -> MultiRLModule:
    built = MultiRLModuleSpec(
        rl_module_specs={module_id: spec() for module_id in module_ids or ("a", "b")}
    ).build()
    assert isinstance(built, MultiRLModule)
    return built


def test_states_are_copies_or_views() -> None:
    module = multi()
    kept, seen = module.get_state(), module.get_state(copy=False)
    with torch.no_grad():
        module["a"].layer.bias.fill_(7)  # type: ignore[attr-defined]
    assert seen["a"]["layer.bias"].tolist() == [7, 7, 7]
    assert kept["a"]["layer.bias"].tolist() != [7, 7, 7]


def test_forward_passes_go_to_the_modules() -> None:
    module = multi()
    obs = torch.ones(4, 2)
    batch = {"a": {"obs": obs}, "b": {"obs": 2 * obs}, "unknown": {}}
    for name in ("forward_inference", "forward_exploration"):
        out = getattr(module, name)(batch, t=5)
        assert set(out) == {"a", "b"}
        assert out["b"]["kwargs"] == {"t": 5}
        assert torch.equal(out["b"]["action_dist_inputs"], module["b"].layer(2 * obs))  # type: ignore[attr-defined]
    assert set(module.forward_train(batch)["a"]) == {"trained"}
    assert not module.is_stateful()
    assert module.get_initial_state() == {"a": {}, "b": {}}


def test_it_is_a_mapping() -> None:
    module = multi()
    assert list(module.keys()) == ["a", "b"]
    assert list(module.values()) == [module["a"], module["b"]]
    assert dict(module.items()) == {"a": module["a"], "b": module.get("b")}
    assert len(module) == 2
    assert "a" in module
    assert module.get("c") is None
    assert module.as_multi_rl_module() is module
    assert module.framework == "torch"
    with pytest.raises(KeyError, match=r"no module 'c'; there are \['a', 'b'\]"):
        module["c"]
    assert module.foreach_module(lambda module_id, part, **kw: (module_id, kw), x=1) == [
        ("a", {"x": 1}),
        ("b", {"x": 1}),
    ]
    assert module.foreach_module(lambda module_id, part: part, return_dict=True) == dict(module.items())


def test_modules_come_and_go() -> None:
    module = MultiRLModuleSpec(rl_module_specs={"a": spec(inference_only=True)}).build()
    assert isinstance(module, MultiRLModule)
    assert module.inference_only
    with pytest.raises(ValueError, match="'a' exists"):
        module.add_module("a", spec().build())
    with pytest.raises(ValueError, match="framework"):
        module.add_module("p", Plain())
    module.add_module("b", spec().build())
    assert not module.inference_only, "one of them can learn"
    assert module.rl_module_specs["b"].module_class is Linear
    module.remove_module("a")
    assert list(module.keys()) == list(module.rl_module_specs) == ["b"]
    with pytest.raises(KeyError):
        module.remove_module("a")
    module.remove_module("a", raise_err_if_not_found=False)
    module.remove_module("b")
    assert bool(module), "one without modules is no false value"


@pytest.mark.parametrize("module_id", ["", "a/b", "a:b", 'a"', 3])
def test_ids_that_cannot_name_a_folder(module_id: Any) -> None:
    with pytest.raises(ValueError, match=r"[Mm]odule id"):
        validate_module_id(module_id)


def test_state() -> None:
    module, other = multi(), multi()
    state = module.get_state()
    assert set(state) == {"a", "b"}
    assert all(isinstance(value, np.ndarray) for value in state["a"].values())
    other.set_state({"b": state["b"], "unknown": {}})
    np.testing.assert_array_equal(other.get_state("b")["b"]["layer.bias"], state["b"]["layer.bias"])
    assert set(module.get_state(not_components=["a"])) == {"b"}


def test_checkpoints(tmp_path: pathlib.Path) -> None:
    module = multi()
    module.save_to_path(tmp_path / "m")
    copy = MultiRLModule.from_checkpoint(tmp_path / "m")
    part = RLModule.from_checkpoint(tmp_path / "m" / "b")
    assert isinstance(part, Linear)
    for found in (copy["b"], part):
        np.testing.assert_array_equal(
            found.get_state()["layer.weight"], module["b"].get_state()["layer.weight"]
        )
    other = multi()
    other.restore_from_path(tmp_path / "m")
    np.testing.assert_array_equal(other["a"].get_state()["layer.bias"], module["a"].get_state()["layer.bias"])


def test_specifications() -> None:
    one = MultiRLModuleSpec(rl_module_specs={"a": spec(inference_only=True)})
    assert one.inference_only
    one.add_modules({"b": spec()})
    assert not one.inference_only
    assert "b" in one
    assert isinstance(one.build("b"), Linear)
    one.remove_modules("a")
    one.remove_modules(["c"])
    assert one.rl_module_specs == {"b": one["b"]}
    one.update(MultiRLModuleSpec(rl_module_specs={"c": spec()}))
    assert set(one.rl_module_specs or ()) == {"b", "c"}
    one.update(RLModuleSpec(model_config={"x": 1}))
    assert {each.model_config["x"] for each in (one["b"], one["c"])} == {1}
    again = MultiRLModuleSpec.from_dict(one.to_dict())
    assert again["c"].module_class is Linear
    assert again.as_multi_rl_module_spec() is again
    assert MultiRLModuleSpec.from_module(multi())["b"].observation_space == BOX


def test_what_specifications_refuse() -> None:
    with pytest.raises(ValueError, match="must be a dict"):
        MultiRLModuleSpec(rl_module_specs=spec())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="module 'a' must be an RLModuleSpec"):
        MultiRLModule(rl_module_specs={"a": Linear})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="framework"):
        MultiRLModule(rl_module_specs={"a": spec(), "b": spec(module_class=Plain)})
    with pytest.raises(KeyError, match="no specification of module 'z'"):
        MultiRLModuleSpec(rl_module_specs={})["z"]


def test_shared_parts() -> None:
    """A subclass with an encoder for all of its modules."""

    class Shared(MultiRLModule):
        def setup(self) -> None:
            self.encoder = torch.nn.Linear(2, 2)
            super().setup()

        def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            encoded = {m: {"obs": self.encoder(part["obs"])} for m, part in batch.items()}
            return super()._forward_inference(encoded, **kwargs)

    module = MultiRLModuleSpec(Shared, rl_module_specs={"a": spec(), "b": spec()}).build()
    out = module.forward_inference({"a": {"obs": torch.zeros(1, 2)}})
    assert torch.equal(out["a"]["action_dist_inputs"], module["a"].layer(module.encoder(torch.zeros(1, 2))))  # type: ignore[index,attr-defined]
