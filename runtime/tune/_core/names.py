"""Names of trials and their folders, and the parameters that a search has chosen. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trial import Trial

MOST_CHARACTERS = 120
"""Of a folder's name; most file systems allow 255 bytes."""
_UNSAFE = re.compile(r"[^\w\-.,=+ ]")


class Naming:
    """How trials of an experiment are named.

    Args:
        folder: of the experiment, on the storage's file system.
        local_folder: where loggers write; the same, if the storage is a local folder.
        stamp: five characters that trial ids begin with.
        date: ends the names of the trials' folders.
        trainable: the name of the function or class.
        space: the search space.
        tag_of: the text for the chosen values of a trial, by its id; None: made from them.
        trial_name_of, dirname_of: of the user; called with the trial.
    """

    def __init__(
        self,
        folder: str,
        local_folder: str,
        stamp: str,
        date: str,
        trainable: str,
        space: Mapping[str, Any],
        tag_of: Callable[[str], str] | None = None,
        trial_name_of: Callable[[Trial], str] | None = None,
        dirname_of: Callable[[Trial], str] | None = None,
    ) -> None:
        self._folder = folder
        self._local_folder = local_folder
        self.trainable = trainable
        self._stamp = stamp
        self._date = date
        self._tag_of = tag_of
        self._trial_name_of = trial_name_of
        self._dirname_of = dirname_of
        self._constants = constants_of(space)

    def trial_id(self, number: int) -> str:
        """Of the n-th trial."""
        return f"{self._stamp}_{number:05d}"

    def complete(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A suggested configuration with the constants of the space that it leaves out."""
        return _merged(self._constants, config)

    def evaluated(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values that are not constants of the space, with names such as "outer/inner"."""
        found: dict[str, Any] = {}
        _collect(config, self._constants, "", found)
        return found

    def tag(self, number: int, trial_id: str, evaluated: Mapping[str, Any]) -> str:
        """The experiment tag of a trial."""
        text = (
            self._tag_of(trial_id)
            if self._tag_of is not None
            else ",".join(f"{name.rpartition('/')[2]}={_shown(value)}" for name, value in evaluated.items())
        )
        return f"{number}_{text}" if text else str(number)

    def name(self, trial: Trial) -> None:
        """Names a new trial and its folder."""
        if self._trial_name_of is not None:
            trial.custom_trial_name = str(self._trial_name_of(trial))
        if self._dirname_of is not None:
            dirname = str(self._dirname_of(trial))
            if not dirname or "/" in dirname:
                raise ValueError(
                    f"trial_dirname_creator gave {dirname!r} for the trial {trial}: it must be a name without '/'."
                )
        else:
            text = _UNSAFE.sub("_", f"{trial}_{trial.experiment_tag}")
            dirname = f"{text[:MOST_CHARACTERS]}_{self._date}"
        trial.custom_dirname = dirname
        self.place(trial)

    def place(self, trial: Trial) -> None:
        """Tells a trial that is named where its folder is."""
        trial.path = f"{self._folder}/{trial.custom_dirname}"
        trial.local_path = f"{self._local_folder}/{trial.custom_dirname}"


def constants_of(space: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a space that are the same in every trial."""
    found: dict[str, Any] = {}
    for name, value in space.items():
        if isinstance(value, Mapping) and not is_choice(value):
            found[name] = constants_of(value)
        elif not is_choice(value):
            found[name] = value
    return found


def is_choice(value: Any) -> bool:
    """Whether a value of a space differs from trial to trial: a domain, a grid, or something that holds one."""
    if isinstance(value, Mapping):
        return set(value) == {"grid_search"}
    if isinstance(value, list | tuple):
        return any(is_choice(each) or (isinstance(each, Mapping) and _has_choice(each)) for each in value)
    return hasattr(value, "sample") and hasattr(value, "is_valid")


def _has_choice(space: Mapping[str, Any]) -> bool:
    return is_choice(space) or any(
        _has_choice(each) if isinstance(each, Mapping) else is_choice(each) for each in space.values()
    )


def _merged(constants: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for name, value in constants.items():
        if name not in merged:
            if isinstance(value, Mapping):
                value = _merged(value, {})
            merged[name] = value
        elif isinstance(value, Mapping) and isinstance(merged[name], Mapping):
            merged[name] = _merged(value, merged[name])
    return merged


def _collect(
    config: Mapping[str, Any], constants: Mapping[str, Any], prefix: str, found: dict[str, Any]
) -> None:
    for name, value in config.items():
        constant = constants.get(name)
        if isinstance(value, Mapping) and value:
            _collect(value, constant if isinstance(constant, Mapping) else {}, f"{prefix}{name}/", found)
        elif name not in constants:
            found[f"{prefix}{name}"] = value


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    text = str(value)
    return text.replace("/", "_") if len(text) < 30 else f"{text[:30].replace('/', '_')}..."
