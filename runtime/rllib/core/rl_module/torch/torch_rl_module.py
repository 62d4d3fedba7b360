"""Modules in torch."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import nn

from ...models.catalog import Catalog
from ..apis.inference_only_api import InferenceOnlyAPI
from ..rl_module import RLModule
from .torch_compile_config import TorchCompileConfig

logger = logging.getLogger(__name__)


class TorchRLModule(nn.Module, RLModule):
    """An `RLModule` that is a `torch.nn.Module`, too: layers that `setup()` assigns are registered.

    `forward_inference` and `forward_exploration` compute no gradients. Calling the module is `forward_train`.
    """

    framework = "torch"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        RLModule.__init__(self, *args, **kwargs)
        if self.inference_only and isinstance(self, InferenceOnlyAPI):
            for path in self.get_non_inference_attributes():
                _delete_attribute(self, path)

    def forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The forward pass for losses, through which wrappers like that of DDP go."""
        return self.forward_train(batch, **kwargs)

    def forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if (
            not torch.is_grad_enabled()
        ):  # of a runner: entering no_grad again would cost a tenth of a small net's time
            return self._forward_inference(batch, **kwargs)
        with torch.no_grad():
            return self._forward_inference(batch, **kwargs)

    def forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if (
            not torch.is_grad_enabled()
        ):  # of a runner: entering no_grad again would cost a tenth of a small net's time
            return self._forward_exploration(batch, **kwargs)
        with torch.no_grad():
            return self._forward_exploration(batch, **kwargs)

    def compile(self, compile_config: TorchCompileConfig | None = None) -> None:
        """Compiles the three forward passes with torch.compile."""
        config = compile_config or TorchCompileConfig()
        options = {"backend": config.torch_dynamo_backend, "mode": config.torch_dynamo_mode, **config.kwargs}
        for name in ("_forward_inference", "_forward_exploration", "_forward_train"):
            # Not setattr: the compiled function holds the module, which must not become its own submodule.
            self.__dict__[name] = torch.compile(getattr(self, name), **options)

    def _action_dist_cls(self) -> Any:
        if self.action_dist_cls is None:
            catalog = self.catalog_class or Catalog
            self.action_dist_cls = catalog._get_dist_cls_from_action_space(
                self.action_space, framework="torch"
            )
        return self.action_dist_cls

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        copy: bool = True,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The weights and buffers by name, as NumPy arrays.

        Args:
            components: not used: a module has no components.
            not_components: not used.
            inference_only: leave out what only learning needs (`InferenceOnlyAPI`).
            copy: False may give views of the weights, which training changes.
        """
        left_out: tuple[str, ...] = ()
        if inference_only and isinstance(self, InferenceOnlyAPI):
            left_out = tuple(path + "." for path in self.get_non_inference_attributes())
        result = {}
        for name, tensor in self.state_dict().items():
            if left_out and f"{name}.".startswith(left_out):
                continue
            array = tensor.detach().cpu().numpy()
            result[name] = array.copy() if copy and tensor.device.type == "cpu" else array
        return result

    def set_state(self, state: dict[str, Any]) -> None:
        """Copies the arrays or tensors of `state` into the weights of these names.

        Names that the module does not have are ignored, such as those that only learning needs. Weights that `state`
        does not have stay as they are; a warning names them unless only learning needs them.

        Raises:
            ValueError: a shape differs, or `state` has none of the module's weights.
        """
        own = self.state_dict()
        found = own.keys() & state.keys()
        if own and not found:
            raise ValueError(
                f"The state has none of the weights of {type(self).__name__}: it has {sorted(state)[:5]}, the module "
                f"{sorted(own)[:5]}"
            )
        with torch.no_grad():
            for name in found:
                _assign(name, own[name], state[name])
        missing = own.keys() - found
        if missing and isinstance(self, InferenceOnlyAPI):
            learning = tuple(path + "." for path in self.get_non_inference_attributes())
            missing = {name for name in missing if not f"{name}.".startswith(learning)}
        if missing:
            logger.warning(
                "The state has no values for these weights, which stay as they are: %s", sorted(missing)
            )


def _delete_attribute(root: Any, path: str) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        root = getattr(root, parent, None)
    if root is not None and hasattr(root, name):
        delattr(root, name)


def _assign(name: str, target: Any, value: Any) -> None:
    shape = tuple(np.shape(value))
    if shape != tuple(target.shape):
        raise ValueError(f"Weight {name!r} has shape {tuple(target.shape)}, but the state's has {shape}")
    if isinstance(value, torch.Tensor):
        target.copy_(value)
    elif target.device.type == "cpu":
        # Through NumPy: torch warns about arrays that are read-only, as those in the object store are.
        target.numpy()[...] = value
    else:
        target.copy_(torch.from_numpy(np.array(value)))
