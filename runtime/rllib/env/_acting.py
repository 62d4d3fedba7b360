"""From observations to actions: one inference of a module for all environments of a runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.trees import Tree
from runtime.rllib.core.columns import Columns
from runtime.rllib.utils.spaces.space_utils import (
    clip_action,
    flatten_space,
    get_base_struct_from_space,
    normalize_action,
    unsquash_action,
)

# What a module gives besides the columns that a rollout keeps.
_NO_COLUMNS = frozenset((Columns.ACTIONS, Columns.ACTIONS_FOR_ENV, Columns.STATE_OUT))


class Acting:
    """A module that acts in N environments, with its recurrent state if it has one."""

    def __init__(self, module: Any, num_envs: int, rng: np.random.Generator, device: Any = "cpu") -> None:
        """
        Args:
            module: an `RLModule`.
            rng: draws discrete actions.
            device: of the module.
        """
        import torch  # here, so that a program with remote runners can start them before it imports torch

        from runtime.rllib.core.distribution.torch.torch_distribution import TorchCategorical

        self._from_numpy, self._inference_mode = torch.from_numpy, torch.inference_mode
        self._categorical = TorchCategorical
        self._module, self._rng = module, rng
        self._device = None if str(device) == "cpu" else device
        self._num_envs = num_envs
        self._lanes = np.arange(num_envs)
        self.initial_state: Tree = None
        """Of one episode; None unless the module is recurrent."""
        self.state: Tree = None
        """Before the next step, [N, ...] each."""
        if module.is_stateful():
            self.initial_state = trees.tree_map(_array, module.get_initial_state())
            self.reset()

    def reset(self, lanes: np.ndarray | None = None) -> None:
        """Starts anew with the initial state, in all lanes or in those of a mask."""
        if self.initial_state is None:
            return
        if lanes is None:
            self.state = trees.tree_map(
                lambda leaf: np.repeat(leaf[None], self._num_envs, 0), self.initial_state
            )
            return
        trees.put(self.state, lanes, self.initial_state)

    def act(self, observations: Tree, explore: bool, timestep: int) -> tuple[dict[str, Any], Any]:
        """Actions for the observations, and the new state.

        Args:
            observations: arrays [N, ...].
            timestep: how many steps all runners have made, for exploration that changes with time.

        Returns:
            The columns "actions" and the module's other outputs, arrays [N, ...] each; and the module's own actions for
            the environment, if it gives some.
        """
        batch = {Columns.OBS: trees.tree_map(self._tensor, observations)}
        stateful = self.state is not None
        if stateful:
            batch[Columns.OBS] = trees.tree_map(_with_time, batch[Columns.OBS])
            batch[Columns.STATE_IN] = trees.tree_map(self._tensor, self.state)
        with self._inference_mode():
            outputs = self._forward(batch, explore, timestep)
            if stateful:
                self.state = trees.tree_map(_own_array, outputs[Columns.STATE_OUT])
                outputs = {
                    name: value if name == Columns.STATE_OUT else trees.tree_map(_without_time, value)
                    for name, value in outputs.items()
                }
            columns = {
                name: trees.tree_map(_array, value)
                for name, value in outputs.items()
                if name not in _NO_COLUMNS
            }
            if Columns.ACTIONS in outputs:
                columns[Columns.ACTIONS] = trees.tree_map(_array, outputs[Columns.ACTIONS])
            else:
                self._draw(outputs, columns, explore)
        if stateful:
            columns[Columns.STATE_OUT] = self.state
        for_env = outputs.get(Columns.ACTIONS_FOR_ENV)
        return columns, None if for_env is None else trees.tree_map(_array, for_env)

    def _forward(self, batch: dict[str, Any], explore: bool, timestep: int) -> dict[str, Any]:
        if explore:
            return self._module.forward_exploration(batch, t=timestep)
        return self._module.forward_inference(batch)

    def _draw(self, outputs: dict[str, Any], columns: dict[str, Any], explore: bool) -> None:
        """Adds actions of the module's distribution, and their log-probabilities."""
        module = self._module
        cls = module.get_exploration_action_dist_cls() if explore else module.get_inference_action_dist_cls()
        try:
            inputs = outputs[Columns.ACTION_DIST_INPUTS]
        except KeyError:
            raise ValueError(
                f"{type(module).__name__} gave neither {Columns.ACTIONS!r} nor {Columns.ACTION_DIST_INPUTS!r}, "
                f"but {sorted(outputs)}"
            ) from None
        if cls is self._categorical:
            logits = columns[Columns.ACTION_DIST_INPUTS]
            if explore:
                actions, logp = draw_categorical(logits, self._rng, self._lanes)
                columns[Columns.ACTIONS] = actions
                columns.setdefault(Columns.ACTION_LOGP, logp)
            else:
                columns[Columns.ACTIONS] = logits.argmax(-1)
            return
        distribution = cls.from_logits(inputs)
        if not explore:
            columns[Columns.ACTIONS] = trees.tree_map(_array, distribution.to_deterministic().sample())
            return
        actions, logp = distribution.sample_and_logp()
        columns[Columns.ACTIONS] = trees.tree_map(_array, actions)
        columns.setdefault(Columns.ACTION_LOGP, _array(logp))

    def _tensor(self, leaf: np.ndarray) -> Any:
        tensor = self._from_numpy(leaf)
        return tensor if self._device is None else tensor.to(self._device)


def draw_categorical(
    logits: np.ndarray, rng: np.random.Generator, lanes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers drawn with the softmax of the logits as probabilities, and their log-probabilities.

    Args:
        logits: float [N, n].
        lanes: `arange(N)`.

    Returns:
        int64 [N] and float [N].
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    cumulated = np.exp(shifted).cumsum(axis=-1)
    total = cumulated[:, -1]
    point = rng.random(len(total), dtype=np.float32) * total
    chosen = (cumulated[:, :-1] <= point[:, None]).sum(axis=-1)
    return chosen, shifted[lanes, chosen] - np.log(total)


def action_converter(space: Any, *, unsquash: bool, clip: bool) -> Callable[[Tree], Tree] | None:
    """The function that makes actions for the environment of a module's actions [N, ...]; None if they are the same.

    Discrete actions of modules count from 0.


    Args:
        space: of one action.
        unsquash: whether actions of bounded boxes are scaled from [-1, 1] to the bounds, and clipped there.
        clip: whether they are only clipped, if not scaled.
    """
    boxes = [leaf for leaf in flatten_space(space) if hasattr(leaf, "low") and leaf.dtype.kind == "f"]
    shift = start_adder(space)
    if not boxes or not (unsquash or clip):
        return None if shift is None else lambda actions: shift(actions, 1)
    bounded = unsquash_action if unsquash else clip_action
    if shift is None:
        return lambda actions: bounded(actions, space)
    return lambda actions: bounded(shift(actions, 1), space)


def module_actions(space: Any, actions: Tree, *, unsquash: bool) -> Tree:
    """What a module would have given for actions [N, ...] of an environment; the inverse of `action_converter`."""
    shift = start_adder(space)
    if shift is not None:
        actions = shift(actions, -1)
    return normalize_action(actions, space) if unsquash else actions


def start_adder(space: Any) -> Callable[[Tree, int], Tree] | None:
    """Modules count discrete actions from 0. The function adds the spaces' first numbers to actions [N, ...], or
    subtracts them (sign -1); None if they are 0."""
    starts = get_base_struct_from_space(space)
    if not any(np.any(getattr(leaf, "start", 0)) for leaf in trees.leaves(starts)):
        return None

    def shifted(actions: Tree, sign: int) -> Tree:
        return trees.tree_map(lambda leaf, of: leaf + sign * getattr(of, "start", 0), actions, starts)

    return shifted


def _array(value: Any) -> Any:
    """A tensor or a number as an array."""
    if isinstance(value, np.ndarray):
        return value
    detach = getattr(value, "detach", None)
    return np.asarray(value) if detach is None else detach().cpu().numpy()


def _own_array(value: Any) -> Any:
    return np.array(_array(value))


def _with_time(tensor: Any) -> Any:
    return tensor.unsqueeze(1)


def _without_time(tensor: Any) -> Any:
    return tensor.squeeze(1)
