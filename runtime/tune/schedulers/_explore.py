"""How population based training changes hyperparameters."""

from __future__ import annotations

import copy
import numbers
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Explore = Callable[[dict[str, Any]], dict[str, Any] | None]


def is_domain(value: object) -> bool:
    """Whether a value is one of tune's sampling domains (`tune.uniform(...)` and so on)."""
    return callable(getattr(value, "sample", None))


def check_mutations(mutations: Mapping[str, Any], prefix: str = "") -> None:
    """Raises TypeError or ValueError with the parameter's name unless all mutations can be explored."""
    for name, value in mutations.items():
        path = prefix + str(name)
        if isinstance(value, Mapping):
            check_mutations(value, path + "/")
        elif isinstance(value, list | tuple):
            if not value:
                raise ValueError(
                    f"hyperparam_mutations[{path!r}] is an empty list; give it the allowed values."
                )
        elif is_domain(value) and callable(getattr(value, "func", None)):
            raise ValueError(
                f"hyperparam_mutations[{path!r}] must not be a tune.sample_from; "
                "use another domain such as tune.uniform, or a function without arguments."
            )
        elif not is_domain(value) and not callable(value):
            raise TypeError(
                f"hyperparam_mutations[{path!r}] must be a list, tuple, dict, domain such as tune.uniform, "
                f"or a function without arguments, not {type(value).__name__}."
            )


def sample(mutation: Any, rng: random.Random) -> Any:
    """A value drawn from a list, a domain, a function or a dict of these."""
    if isinstance(mutation, Mapping):
        return {name: sample(value, rng) for name, value in mutation.items()}
    if isinstance(mutation, list | tuple):
        return rng.choice(mutation)
    return mutation.sample(random_state=rng) if is_domain(mutation) else mutation()


def fill(config: dict[str, Any], mutations: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Draws the hyperparameters that a config lacks. Returns those that were drawn, at the top level."""
    drawn: dict[str, Any] = {}
    for name, mutation in mutations.items():
        if name not in config:
            config[name] = drawn[name] = sample(mutation, rng)
        elif (
            isinstance(mutation, Mapping)
            and isinstance(config[name], dict)
            and fill(config[name], mutation, rng)
        ):
            drawn[name] = config[name]
    return drawn


def explore(
    config: Mapping[str, Any],
    mutations: Mapping[str, Any],
    resample_probability: float,
    factors: Sequence[float],
    custom_explore_fn: Explore | None,
    rng: random.Random,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Changes the hyperparameters of a config.

    Each is drawn anew with `resample_probability`. Otherwise one from a list moves to a neighbour in the list, and any
    other is multiplied with one of `factors`. Whole numbers stay whole, booleans stay booleans.

    Returns:
        The new config, and what was done to each hyperparameter.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    done: dict[str, Any] = {}
    for name, mutation in mutations.items():
        if isinstance(mutation, Mapping):
            changed[name], done[name] = explore(
                changed[name], mutation, resample_probability, factors, None, rng
            )
        elif isinstance(mutation, list | tuple):
            changed[name], done[name] = _explore_choice(changed[name], mutation, resample_probability, rng)
        else:
            changed[name], done[name] = _explore_number(
                changed[name], mutation, resample_probability, factors, rng
            )
    return customized(changed, custom_explore_fn), done


def customized(config: dict[str, Any], custom_explore_fn: Explore | None) -> dict[str, Any]:
    """What the user's function makes of a config. Raises ValueError if it returns nothing."""
    if custom_explore_fn is None:
        return config
    changed = custom_explore_fn(config)
    if changed is None:
        raise ValueError("custom_explore_fn returned None; it must return the config to go on with.")
    return changed


def _explore_choice(
    value: Any, choices: Sequence[Any], resample_probability: float, rng: random.Random
) -> tuple[Any, str]:
    if rng.random() < resample_probability or value not in choices:
        return rng.choice(choices), "resample"
    place = choices.index(value)
    step = rng.choice((-1, 1))
    moved = min(max(place + step, 0), len(choices) - 1)
    return choices[moved], f"shift {'left' if step < 0 else 'right'}{' (noop)' if moved == place else ''}"


def _explore_number(
    value: Any, mutation: Any, resample_probability: float, factors: Sequence[float], rng: random.Random
) -> tuple[Any, str]:
    if rng.random() < resample_probability:
        changed, done = sample(mutation, rng), "resample"
    elif isinstance(value, bool):
        changed, done = value, "keep"
    elif isinstance(value, numbers.Real):
        factor = rng.choice(factors)
        changed, done = value * factor, f"* {factor}"
    else:
        changed, done = sample(mutation, rng), "resample"  # a word, say, which cannot be multiplied
    if isinstance(value, bool):
        changed = bool(changed)
    elif isinstance(value, numbers.Integral) and isinstance(changed, numbers.Real):
        changed = round(changed)
    return changed, done


def mutated_part(config: Mapping[str, Any], mutations: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The hyperparameters of a config that are mutated, flat: nested names are joined with "/"."""
    flat: dict[str, Any] = {}
    for name, mutation in mutations.items():
        if name not in config:
            continue
        if isinstance(mutation, Mapping):
            flat |= mutated_part(config[name], mutation, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = config[name]
    return flat


def perturbed_tag(tag: str, config: Mapping[str, Any], mutations: Mapping[str, Any]) -> str:
    """A trial's tag with the values of its mutated hyperparameters."""
    parts = []
    for name, value in mutated_part(config, mutations).items():
        text = f"{value:.4f}" if isinstance(value, float) else re.sub(r"[^\w.,=+-]", "_", str(value))
        parts.append(f"{name.rsplit('/', 1)[-1]}={text}")
    return f"{tag}@perturbed[{','.join(parts)}]"
