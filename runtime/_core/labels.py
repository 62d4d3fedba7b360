"""Label selectors: which nodes a request accepts by their labels.

A selector maps a label's key to a condition: "v" (equal), "!v" (not equal, or missing), "in(a,b)" (one of),
"!in(a,b)" (none of, or missing). All conditions must hold. Inside the engine "exists()" and "!exists()" ask
for the key alone; users say these with `NodeLabelSchedulingStrategy`.

Keys and values follow the syntax of Kubernetes labels
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

NODE_ID = "ray.io/node-id"
NODE_GROUP = "ray.io/node-group"
ACCELERATOR_TYPE = "ray.io/accelerator-type"
MARKET_TYPE = "ray.io/market-type"
REGION = "ray.io/availability-region"
ZONE = "ray.io/availability-zone"
TPU_SLICE = "ray.io/tpu-slice-name"
TPU_WORKER = "ray.io/tpu-worker-id"
TPU_TOPOLOGY = "ray.io/tpu-topology"
TPU_POD_TYPE = "ray.io/tpu-pod-type"

EXISTS = "exists()"
MISSING = "!exists()"

_NAME = r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_VALUE = rf"(?:{_NAME})?"
_PREFIX = rf"(?:{_NAME})?(?:\.(?:{_NAME})?)*"
_CONDITION = rf"(?:!?(?:in)?\({_NAME}(?:, ?{_NAME})*\)|!?{_NAME})?"
_MOST_PREFIX = 253
_SHAPE = (
    "has at most 63 characters, begins and ends with a letter or digit, and holds letters, digits, '-', '_' "
    "and '.' only"
)


class Condition(msgspec.Struct, frozen=True):
    """A parsed condition: the label's value is among `values` (None: anything), or with `negated` it is not."""

    values: frozenset[str] | None
    negated: bool

    def holds(self, value: str | None) -> bool:
        """`value` is None when the node does not carry the label."""
        found = value is not None if self.values is None else value in self.values
        return found is not self.negated


@lru_cache(maxsize=4096)
def parse_condition(text: str) -> Condition:
    """Parses one condition.

    Raises:
        ValueError: its parentheses do not match.
    """
    body = text.strip()
    negated = body.startswith("!")
    if negated:
        body = body[1:].strip()
    if body == EXISTS:
        return Condition(None, negated)
    name, parenthesis, rest = body.partition("(")
    if not parenthesis:
        return Condition(frozenset((body,)), negated)
    if name.strip() not in ("in", "") or not rest.endswith(")"):
        raise ValueError(f"Invalid label selector value {text!r}: its closing parenthesis is missing.")
    values = frozenset(part.strip() for part in rest[:-1].split(","))
    return Condition(values - {""}, negated)


def one_of(values: Iterable[str], negated: bool = False) -> str:
    """The condition that a label's value is, or with `negated` is not, among `values`.

    Values that no label can have are left out: no node carries them.
    """
    possible = ",".join(value for value in values if value and re.fullmatch(_VALUE, value))
    return f"{'!' if negated else ''}in({possible})"


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with `labels` satisfies `selector`.

    Raises:
        ValueError: a condition does not parse.
    """
    return all(parse_condition(text).holds(labels.get(key)) for key, text in selector.items())


def check_conditions(selector: Mapping[str, str]) -> None:
    """Raises ValueError when `matches` would, for any node."""
    for text in selector.values():
        parse_condition(text)


# ---------------------------------------------------------------- what users may write


def check_key(key: str) -> None:
    """Raises ValueError unless `key` is a label's key: a name, or prefix/name."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _MOST_PREFIX or not re.fullmatch(_PREFIX, prefix)):
        raise ValueError(
            f"Invalid label key prefix `{prefix}`: it is a series of DNS labels with dots between, of at most "
            f"{_MOST_PREFIX} characters."
        )
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"Invalid label key name `{name}`: it {_SHAPE}.")


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises ValueError, or TypeError for what is no string, naming the key or value that no node can be labelled
    with."""
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"Labels must be strings: {key!r}: {value!r}.")
        check_key(key)
        if not re.fullmatch(_VALUE, value):
            raise ValueError(f"Invalid label key value `{value}`: it {_SHAPE}.")


def parse_labels(text: str) -> dict[str, str]:
    """Reads a node's labels: `key=value,key=value`, or a JSON object.

    Raises:
        ValueError: it is neither, or no node can be labelled so.
    """
    text = text.strip()
    found: dict[str, str] = {}
    if text.startswith("{"):
        found = json.loads(text)
        if not all(isinstance(value, str) for value in found.values()):
            raise ValueError(f"The values of labels are strings: {text}.")
    else:
        for pair in filter(None, text.split(",")):
            key, equals, value = pair.partition("=")
            if not equals or "=" in value:
                raise ValueError(f"Label string is not a key-value pair: {pair!r} in {text!r}.")
            found[key.strip()] = value.strip()
    check_labels(found)
    return found


def check_selector(selector: Mapping[str, str]) -> None:
    """Raises ValueError naming the key or condition of a user's selector that is wrong."""
    for key, text in selector.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"A label selector maps strings to strings, not {key!r} to {text!r}.")
        check_key(key)
        if not re.fullmatch(_CONDITION, text):
            raise ValueError(
                f'Invalid label selector value `{text}` of `{key}`: use "v", "!v", "in(a,b)" or '
                f'"!in(a,b)", where each value {_SHAPE}.'
            )


def check_fallbacks(fallbacks: Iterable[object]) -> None:
    """Raises ValueError unless each is a dict with a `label_selector` and nothing else."""
    for fallback in fallbacks:
        if not isinstance(fallback, Mapping):
            raise ValueError(
                f"Each element in fallback_strategy must be a dictionary, such as "
                f"{{'label_selector': {{...}}}}; {fallback!r} is not one."
            )
        if not fallback:
            raise ValueError("Empty dictionary found in `fallback_strategy`: leave it out.")
        for option in fallback:
            if option != "label_selector":
                raise ValueError(
                    f"Unsupported option found: '{option}'. Only ['label_selector'] can stand in a "
                    "fallback_strategy."
                )
        selector = fallback["label_selector"]
        if selector is None:
            continue
        if not isinstance(selector, Mapping):
            raise ValueError('The value of "label_selector" must be a dictionary.')
        check_selector(selector)
