"""Checkpoints with a model of torch in a file of a fixed name."""

from __future__ import annotations

import pathlib
import tempfile
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from runtime import cloudpickle
from runtime.train._api.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch

    from runtime.data.preprocessor import Preprocessor

_DEPRECATED = (
    "TorchCheckpoint is deprecated in Ray Train: write a folder, and use Checkpoint.from_directory()."
)
_PREPROCESSOR = "preprocessor_pkl"
_DDP_PREFIX = "module."


class TorchCheckpoint(Checkpoint):
    """A checkpoint with a model, and the preprocessor of its inputs. Deprecated in Ray; made with a warning.

    Open only checkpoints that you trust: models and preprocessors are pickled.
    """

    MODEL_FILENAME = "model.pt"

    @classmethod
    def from_state_dict(
        cls, state_dict: Mapping[str, Any], *, preprocessor: Preprocessor | None = None
    ) -> Self:
        """A checkpoint of a model's state, without the prefix that `DistributedDataParallel` gives its names."""
        return cls._saved(
            {name.removeprefix(_DDP_PREFIX): value for name, value in state_dict.items()}, preprocessor
        )

    @classmethod
    def from_model(cls, model: torch.nn.Module, *, preprocessor: Preprocessor | None = None) -> Self:
        """A checkpoint of a whole model, pickled."""
        return cls._saved(model, preprocessor)

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """The model, on the CPU.

        Args:
            model: takes the state, of a checkpoint with a state.

        Raises:
            RuntimeError: this is not the checkpoint of a model.
            ValueError: it has a state, and `model` is not given.
        """
        import torch

        with self.as_directory() as folder:
            path = pathlib.Path(folder, self.MODEL_FILENAME)
            if not path.exists():
                raise RuntimeError(
                    f"{self!r} has no {self.MODEL_FILENAME}: no method of TorchCheckpoint made it."
                )
            content = torch.load(path, map_location="cpu", weights_only=False)
        if isinstance(content, torch.nn.Module):
            return content
        if model is None:
            raise ValueError("The checkpoint has a model's state: get_model needs a model that takes it.")
        model.load_state_dict(content)
        return model

    def get_preprocessor(self) -> Preprocessor | None:
        """The preprocessor; None if there is none."""
        text = self.get_metadata().get(_PREPROCESSOR)
        preprocessor: Preprocessor | None = None if text is None else cloudpickle.loads(bytes.fromhex(text))
        return preprocessor

    def set_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Stores a preprocessor in the checkpoint's metadata."""
        self.update_metadata({_PREPROCESSOR: cloudpickle.dumps(preprocessor).hex()})

    @classmethod
    def _saved(cls, content: Any, preprocessor: Preprocessor | None) -> Self:
        import torch

        warnings.warn(_DEPRECATED, DeprecationWarning, stacklevel=3)
        folder = tempfile.mkdtemp(prefix="torch-checkpoint-")
        torch.save(content, pathlib.Path(folder, cls.MODEL_FILENAME))
        checkpoint = cls(folder)
        if preprocessor is not None:
            checkpoint.set_preprocessor(preprocessor)
        return checkpoint
