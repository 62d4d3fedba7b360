"""Trainables: what a trial runs."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import runtime
from runtime import cloudpickle
from runtime.train._api.checkpoint import Checkpoint
from runtime.tune._api.resources import PlacementGroupFactory, resources_to_factory

if TYPE_CHECKING:
    from runtime.tune._run.place import TrialPlace

_DICT = "_dict_checkpoint.pkl"


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """What `Trainable.save` gives.

    Attributes:
        checkpoint: the folder with the state.
        metrics: the latest result of `train()`; empty before the first.
    """

    checkpoint: Checkpoint
    metrics: dict[str, Any]


class Trainable:
    """A trial as a class: `setup` once, then `step` until the trial ends.

    Attributes:
        config: the configuration.
        preloaded_modules: names of modules that trials' processes have imported when they start, besides those that the
            class refers to.
    """

    preloaded_modules: ClassVar[tuple[str, ...]] = ()
    config: dict[str, Any]
    _place: TrialPlace | None = None
    _iteration = 0
    _latest_result: dict[str, Any] | None = None

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self._begin(config or {}, None)
        self.setup(self.config)

    # ------------------------------------------------------------ what programs define

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, with the configuration and what `with_parameters` gave."""

    def step(self) -> dict[str, Any]:
        """One iteration; returns its metrics. `done=True` among them ends the trial, `should_checkpoint=True` has a
        checkpoint saved."""
        raise NotImplementedError(f"{type(self).__name__} must define step().")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """Saves the state in a folder. A dict that it returns is saved there, too."""
        raise NotImplementedError(f"{type(self).__name__} must define save_checkpoint() to be checkpointed.")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restores the state: gets the folder, or the dict that `save_checkpoint` returned."""
        raise NotImplementedError(f"{type(self).__name__} must define load_checkpoint() to be restored.")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begins again with another configuration, in the same object. Returns whether it has; False: another object is
        made."""
        return False

    def cleanup(self) -> None:
        """Called once when the object is done with: its trial has ended, failed or was paused, and no other one takes
        the object over. Not called if `setup` failed, or if the process ended by itself."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with every result."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
        """The resources of a trial with this configuration; None: one CPU."""
        return None

    # ------------------------------------------------------------ what they call

    @property
    def training_iteration(self) -> int:
        """How many steps there were."""
        return self._iteration

    iteration = training_iteration

    @property
    def trial_id(self) -> str:
        """The trial's id; "default" outside of one."""
        return self._place.trial_id if self._place is not None else "default"

    @property
    def trial_name(self) -> str:
        """The trial's name."""
        return self._place.assignment.name if self._place is not None else "default"

    @property
    def trial_resources(self) -> PlacementGroupFactory | None:
        """The resources of the trial."""
        found: PlacementGroupFactory | None = self._place.assignment.resources if self._place else None
        return found

    @property
    def logdir(self) -> str:
        """A folder of the trial on this machine."""
        return self._place.local_path if self._place is not None else os.getcwd()

    def get_config(self) -> dict[str, Any]:
        """The configuration."""
        return self.config

    def train(self) -> dict[str, Any]:
        """One step, outside of an experiment."""
        result = self.step()
        self._iteration += 1
        result = {"training_iteration": self._iteration, "done": False, **result}
        self._latest_result = result
        self.log_result(result)
        return result

    def save(self, checkpoint_dir: str | None = None) -> TrainingResult:
        """Saves the state in a folder, a new temporary one by default.

        Returns:
            The checkpoint, and the latest result. `restore` takes it.
        """
        folder = checkpoint_dir or tempfile.mkdtemp(prefix="checkpoint-")
        os.makedirs(folder, exist_ok=True)
        self._save(folder)
        return TrainingResult(Checkpoint.from_directory(folder), self._latest_result or {})

    def restore(self, checkpoint_path: str | os.PathLike[str] | Checkpoint | TrainingResult) -> None:
        """Restores the state that `save` has saved: takes what it returned, the checkpoint, or the folder."""
        if isinstance(checkpoint_path, TrainingResult):
            checkpoint_path = checkpoint_path.checkpoint
        if isinstance(checkpoint_path, Checkpoint):
            with checkpoint_path.as_directory() as folder:
                self._load(folder)
        else:
            self._load(os.fspath(checkpoint_path))

    def stop(self) -> None:
        """Ends it, outside of an experiment."""
        self.cleanup()

    # ------------------------------------------------------------ the runner's side

    def _begin(self, config: dict[str, Any], place: TrialPlace | None) -> None:
        self.config, self._place = config, place
        self._iteration = place.iteration if place is not None else 0

    def _save(self, folder: str) -> None:
        state = self.save_checkpoint(folder)
        if isinstance(state, dict):
            with open(os.path.join(folder, _DICT), "wb") as file:
                cloudpickle.dump(state, file)

    def _load(self, folder: str) -> None:
        path = os.path.join(folder, _DICT)
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.load_checkpoint(pickle.load(file))
        else:
            self.load_checkpoint(folder)


class Equipped:
    """A trainable with resources, parameters, or both.

    Attributes:
        trainable: the function or class.
        resources: as given to `with_resources`; None: the default.
        parameters: references by name.
    """

    def __init__(
        self, trainable: Any, resources: Any = None, parameters: Mapping[str, Any] | None = None
    ) -> None:
        self.trainable = trainable
        self.resources = resources
        self.parameters = dict(parameters or {})
        self.__name__ = name_of(trainable)


def with_resources(trainable: Any, resources: Any) -> Any:
    """A trainable whose trials have these resources.

    Args:
        trainable: a function or class.
        resources: a dict such as {"CPU": 2, "GPU": 0.5}, a PlacementGroupFactory, or a function of the configuration
            that returns one of them.

    Raises:
        ValueError: the amounts cannot be meant.
    """
    if not callable(resources):
        resources = resources_to_factory(resources)
    if isinstance(trainable, Equipped):
        return Equipped(trainable.trainable, resources, trainable.parameters)
    return Equipped(trainable, resources)


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """A trainable that gets large objects besides the configuration. They are put into the object store once, and
    arrive as keyword arguments of the function, or of `setup` of a class.

    Args:
        trainable: a function or class.
        parameters: the objects.

    Raises:
        TypeError: the trainable is neither.
    """
    inner = trainable.trainable if isinstance(trainable, Equipped) else trainable
    if not callable(inner):
        raise TypeError(f"with_parameters needs a function or a class of Trainable, not {inner!r}.")
    refs = {name: runtime.put(value) for name, value in parameters.items()}
    if isinstance(trainable, Equipped):
        return Equipped(inner, trainable.resources, {**trainable.parameters, **refs})
    return Equipped(inner, None, refs)


_registered: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Gives a trainable a name, under which `Tuner` and `run` find it."""
    _registered[name] = trainable


def registered_trainable(name: str) -> Any:
    """What is registered under a name: by `register_trainable`, or as an algorithm of `runtime.rllib`.

    Raises:
        ValueError: there is none.
    """
    if name in _registered:
        return _registered[name]
    algorithms, more = None, ""
    try:
        # By name: that library is built upon this one.
        algorithms = importlib.import_module("runtime.rllib.algorithms.registry")
        more = f"; algorithms are: {', '.join(algorithms.ALGORITHMS)}"
    except ImportError as error:
        more = f"; algorithms cannot be imported ({error})"
    if algorithms is not None and name in algorithms.ALGORITHMS:
        return algorithms.get_algorithm_class(name)
    known = ", ".join(sorted(_registered)) or "none"
    raise ValueError(
        f"No trainable is registered as {name!r}; registered are: {known}{more}. Call tune.register_trainable "
        "first, or pass the function or class itself."
    )


def found_trainable(trainable: Any) -> Equipped:
    """The trainable that is meant, checked.

    Raises:
        ValueError: there is none of the name.
        TypeError: it cannot be run.
    """
    if isinstance(trainable, str):
        name, trainable = trainable, registered_trainable(trainable)
        equipped = trainable if isinstance(trainable, Equipped) else Equipped(trainable)
        equipped.__name__ = name
    else:
        equipped = trainable if isinstance(trainable, Equipped) else Equipped(trainable)
    inner = equipped.trainable
    if hasattr(inner, "train_loop_per_worker") or hasattr(inner, "fit"):
        raise TypeError(
            "A Tuner runs functions and classes, not trainers. Call the trainer's fit() in a function of the "
            "configuration, and tune that."
        )
    if inspect.isclass(inner):
        if not issubclass(inner, Trainable):
            raise TypeError(f"The class {inner.__name__} must be a subclass of tune.Trainable.")
    elif callable(inner):
        _check_function(inner, equipped.parameters)
    else:
        raise TypeError(
            f"A trainable is a function, a class of Trainable or a registered name, not {inner!r}."
        )
    return equipped


def _check_function(function: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
        signature.bind({}, **dict.fromkeys(parameters))
    except ValueError:
        return  # it has none that can be read
    except TypeError as error:
        expected = "its configuration" + "".join(f", {name}=..." for name in parameters)
        raise TypeError(
            f"The trainable {name_of(function)}{signature} cannot be called with {expected}: {error}."
        ) from None


def name_of(trainable: Any) -> str:
    """The name of a function or class."""
    while hasattr(trainable, "func"):  # functools.partial
        trainable = trainable.func
    name = getattr(trainable, "__name__", type(trainable).__name__)
    return "lambda" if name == "<lambda>" else str(name)
