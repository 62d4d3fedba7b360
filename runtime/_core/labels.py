"""Label selectors: which nodes a request accepts by their labels.

A selector maps a label's key to a condition: "v" (equal), "!v" (not equal, or missing), "in(a,b)" (one of),
"!in(a,b)" (none of, or missing). All conditions must hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition: the label's value is among `values`, or with `negated` it is not."""

    values: frozenset[str]
    negated: bool

    def holds(self, value: str | None) -> bool:
        """`value` is None when the node does not carry the label."""
        return (value in self.values) is not self.negated


@lru_cache(maxsize=4096)
def parse_condition(text: str) -> Condition:
    """Parses one condition.

    Raises:
        ValueError: the text has no value in it or its parentheses do not match.
    """
    body = text.strip()
    negated = body.startswith("!")
    if negated:
        body = body[1:].strip()
    if body.startswith(("in(", "in (")):
        if not body.endswith(")"):
            raise ValueError(f"label condition {text!r} lacks its closing parenthesis")
        values = frozenset(part.strip() for part in body[body.index("(") + 1 : -1].split(","))
    else:
        values = frozenset((body,))
    if "" in values:
        raise ValueError(f'label condition {text!r} is empty; use "v", "!v", "in(a,b)" or "!in(a,b)"')
    return Condition(values, negated)


def check_selector(selector: Mapping[str, str]) -> None:
    """Raises ValueError naming the key whose condition does not parse."""
    for key, text in selector.items():
        if not key:
            raise ValueError("a label selector has an empty key")
        try:
            parse_condition(text)
        except ValueError as error:
            raise ValueError(f"label {key!r}: {error}") from None


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with `labels` satisfies `selector`.

    Raises:
        ValueError: a condition does not parse.
    """
    return all(parse_condition(text).holds(labels.get(key)) for key, text in selector.items())
