"""Access to torch, and devices. TensorFlow and JAX are not supported."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

_PACKAGES = ("gymnasium", "numpy", "torch")


def require(*packages: str) -> None:
    """Checks that packages are installed, without importing them.

    Raises:
        ImportError: one is missing; names all packages of RLlib that are, and how to install them.
    """
    if all(importlib.util.find_spec(name) is not None for name in packages):
        return
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    wanted = ["'clusterctl[rllib]'"] if missing != ["torch"] else []
    hint = ""
    if "torch" in missing:
        wanted.append("torch")
        hint = " (of torch the variant that the machine needs: https://pytorch.org)"
    raise ImportError(
        f"RLlib needs {' and '.join(', '.join(missing).rsplit(', ', 1))}, which {'is' if len(missing) == 1 else 'are'} "
        f"not installed here: pip install {' '.join(wanted)}{hint}"
    )


def try_import_torch(error: bool = False) -> tuple[Any, Any]:
    """(torch, torch.nn), or (None, stubs that can be subclassed) if torch is not installed.

    Args:
        error: raise an ImportError if it is not.
    """
    if importlib.util.find_spec("torch") is None:
        if error:
            raise ImportError("torch is not installed. Install the variant of it that the machine needs")
        return None, _NNStub()
    torch = importlib.import_module("torch")
    return torch, torch.nn


class _NNStub:
    """In place of torch.nn, so that subclasses of `nn.Module` can be defined without torch."""

    class Module:
        """In place of torch.nn.Module."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise ImportError("torch is not installed. Install the variant of it that the machine needs")

    functional = None


def try_import_tf(error: bool = False) -> tuple[Any, Any, Any]:
    """(None, None, None): TensorFlow is not supported.

    Raises:
        ImportError: `error` is True.
    """
    if error:
        raise ImportError("RLlib's modules and learners are in torch; TensorFlow is not supported")
    return None, None, None


def try_import_tfp(error: bool = False) -> Any:
    """None: TensorFlow is not supported.

    Raises:
        ImportError: `error` is True.
    """
    return try_import_tf(error)[0]


def try_import_jax(error: bool = False) -> tuple[Any, Any]:
    """(None, None): JAX is not supported.

    Raises:
        ImportError: `error` is True.
    """
    if error:
        raise ImportError("RLlib's modules and learners are in torch; JAX is not supported")
    return None, None


def convert_to_tensor(data: Any, framework: str, device: Any = None) -> Any:
    """A tree of arrays or numbers as a tree of tensors.

    Raises:
        ValueError: `framework` is not "torch".
    """
    if framework != "torch":
        raise ValueError(f"Tensors exist for framework 'torch', not for {framework!r}")
    from .torch_utils import convert_to_torch_tensor

    return convert_to_torch_tensor(data, device=device)


def get_device(config: Any, num_gpus_requested: float = 1) -> Any:
    """The torch device on which a learner or runner has its module: the first GPU it was given, or the CPU.

    Args:
        config: the algorithm's configuration.
        num_gpus_requested: GPUs of this actor; 0 means the CPU.

    Raises:
        RuntimeError: GPUs are requested, but torch sees none.
    """
    torch, _ = try_import_torch(error=True)
    if not num_gpus_requested:
        return torch.device("cpu")
    if torch.cuda.is_available():
        local = config.local_gpu_idx if getattr(config, "num_learners", 1) == 0 else 0
        return torch.device(f"cuda:{min(local, torch.cuda.device_count() - 1)}")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    raise RuntimeError(
        f"{num_gpus_requested} GPUs are requested, but torch sees none. Set num_gpus_per_learner=0 (config.learners()) "
        "and num_gpus_per_env_runner=0 (config.env_runners()), or install torch with CUDA"
    )
