"""Environment variables as typed settings: what a value may be, and the error when it is something else.

`runtime/_system/settings.py` is the table of those that the engine reads, `clusterctl/settings.py` of the operator's.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger("runtime")
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class SettingError(ValueError):
    """An environment variable has a value that its setting does not take.

    Attributes:
        variable: its name.
        value: what it is set to.
        wanted: what the setting takes.
    """

    def __init__(self, variable: str, value: str, wanted: str) -> None:
        super().__init__(variable, value, wanted)
        self.variable = variable
        self.value = value
        self.wanted = wanted

    def __str__(self) -> str:
        return f"the environment variable {self.variable} is {self.value!r}; expected: {self.wanted}"


class Setting(Generic[T]):
    """One environment variable. Each call of `get` reads the environment anew.

    Attributes:
        name: the variable. One that begins with RAY_ and a small letter is also a key of `_system_config`.
        kind: its type in words, e.g. "whole number from 0".
        default: the value while the variable is unset or empty.
        shown_default: the default in words.
        effect: what the setting does.
        aliases: variables that are read when `name` is unset, in this order.
    """

    __slots__ = ("_empty_counts", "_parse", "aliases", "default", "effect", "kind", "name", "shown_default")

    def __init__(
        self,
        name: str,
        kind: str,
        parse: Callable[[str], T],
        default: T,
        effect: str,
        *,
        shown_default: str = "",
        aliases: tuple[str, ...] = (),
        empty_counts: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.shown_default = shown_default
        self.effect = effect
        self.aliases = aliases
        self._parse = parse
        self._empty_counts = empty_counts

    @property
    def system_config_name(self) -> str:
        """The key of `_system_config` that means this setting; "" when it has none."""
        key = self.name.removeprefix("RAY_")
        return key if key != self.name and key[:1].islower() else ""

    def named(self, part: str) -> Setting[T]:
        """This setting, with `part` in place of <NAME> in the variable's name."""
        return Setting(
            self.name.replace("<NAME>", part),
            self.kind,
            self._parse,
            self.default,
            self.effect,
            shown_default=self.shown_default,
        )

    def get(self, environ: Mapping[str, str] | None = None, node: Mapping[str, str] | None = None) -> T:
        """The value.

        Args:
            environ: the environment; default: this process's.
            node: settings of this process's node, by their keys in `_system_config`, for a variable that is not set.

        Raises:
            SettingError: the variable has a value of another kind.
        """
        variables = os.environ if environ is None else environ
        text = variables.get(self.name)
        if (
            text is None and node is None and not self.aliases
        ):  # most often; a call with `.options()` comes through here
            return self.default
        for name in (self.name, *self.aliases):
            text = variables.get(name)
            if text or (text is not None and self._empty_counts):
                return self._parsed(name, text)
        key = self.system_config_name
        text = node.get(key) if node and key else None
        return self._parsed(self.name, text) if text else self.default

    def get_or_default(self, node: Mapping[str, str] | None = None) -> T:
        """The value; the default, with a warning in the log, when the variable has a value of another kind. For
        processes that the user does not start, where an exception would reach nobody."""
        try:
            return self.get(node=node)
        except SettingError as error:
            log.warning("%s: using %s", error, self.default)
            return self.default

    def _parsed(self, name: str, text: str) -> T:
        try:
            return self._parse(text)
        except ValueError as error:
            raise SettingError(name, text, self.kind) from error


class Family(Generic[T]):
    """Variables that differ in one part of their names.

    Attributes:
        members: one setting for each part.
    """

    __slots__ = ("members",)

    def __init__(self, members: Mapping[str, Setting[T]]) -> None:
        self.members = members

    def __getitem__(self, part: str) -> Setting[T]:
        return self.members[part]


class Section:
    """A part of the table, under one heading. Its methods declare settings.

    Args:
        title: the heading.
        introduction: what the settings have in common, and where to set them.
    """

    def __init__(self, title: str, introduction: str) -> None:
        self.title = title
        self.introduction = introduction
        self.settings: list[Setting[Any]] = []

    def text(
        self,
        name: str,
        effect: str,
        *,
        kind: str = "text",
        default: str = "",
        shown_default: str = "",
        aliases: tuple[str, ...] = (),
    ) -> Setting[str]:
        """Any text; `kind` says in words what it should be."""
        return self._add(
            Setting(name, kind, str, default, effect, shown_default=shown_default or default, aliases=aliases)
        )

    def optional_text(self, name: str, effect: str, *, kind: str, shown_default: str) -> Setting[str | None]:
        """Text that may be empty; None: the variable is not set."""

        def parse(text: str) -> str | None:
            return text

        return self._add(
            Setting(name, kind, parse, None, effect, shown_default=shown_default, empty_counts=True)
        )

    def flag(self, name: str, effect: str, *, default: bool) -> Setting[bool]:
        """1, true, yes or on; 0, false, no or off."""
        return self._add(Setting(name, "1 or 0", _flag, default, effect, shown_default=str(int(default))))

    def optional_flag(self, name: str, effect: str, *, shown_default: str) -> Setting[bool | None]:
        """As `flag`; None: the variable is not set."""
        return self._add(Setting(name, "1 or 0", _optional_flag, None, effect, shown_default=shown_default))

    def whole(
        self, name: str, default: int, effect: str, *, minimum: int = 0, shown_default: str = ""
    ) -> Setting[int]:
        """A whole number of at least `minimum`; 1e6 is one."""

        def parse(text: str) -> int:
            return int(_number(text, minimum, math.inf, is_whole=True))

        return self._add(
            Setting(
                name,
                f"whole number from {minimum}",
                parse,
                default,
                effect,
                shown_default=shown_default or str(default),
            )
        )

    def number(
        self,
        name: str,
        default: float,
        effect: str,
        *,
        minimum: float = 0.0,
        maximum: float = math.inf,
        shown_default: str = "",
    ) -> Setting[float]:
        """A number from `minimum` to `maximum`."""
        limit = "" if maximum == math.inf else f" to {maximum:g}"

        def parse(text: str) -> float:
            return _number(text, minimum, maximum)

        return self._add(
            Setting(
                name,
                f"number from {minimum:g}{limit}",
                parse,
                default,
                effect,
                shown_default=shown_default or f"{default:g}",
            )
        )

    def json_object(
        self, name: str, effect: str, *, aliases: tuple[str, ...] = ()
    ) -> Setting[dict[str, Any]]:
        """A JSON object."""
        return self._add(
            Setting(name, "a JSON object", _json_object, {}, effect, shown_default="{}", aliases=aliases)
        )

    def pattern(self, name: str, effect: str) -> Setting[re.Pattern[str] | None]:
        """A regular expression of Python's; None: the variable is not set."""
        return self._add(Setting(name, "a regular expression", _pattern, None, effect, shown_default="none"))

    def log_level(self, name: str, effect: str) -> Setting[str]:
        """The name of a log level."""
        return self._add(Setting(name, ", ".join(_LEVELS), _level, "INFO", effect, shown_default="INFO"))

    def family(
        self, pattern: str, parts: tuple[str, ...], declare: Callable[[str, str], Setting[T]]
    ) -> Family[T]:
        """One setting for each of `parts`.

        Args:
            pattern: the names of the variables, with {} in place of the part.
            declare: makes the setting from the variable's name and the part.
        """
        return Family({part: declare(pattern.format(part), part) for part in parts})

    def _add(self, setting: Setting[T]) -> Setting[T]:
        self.settings.append(setting)
        return setting


def check(sections: tuple[Section, ...], environ: Mapping[str, str] | None = None) -> None:
    """Reads every setting of the sections once: a program or daemon with a wrong value ends at its start, and not in
    the middle of its work.

    Raises:
        SettingError: a variable has a value that its setting does not take.
    """
    for setting in declared(sections):
        setting.get(environ)


def declared(sections: tuple[Section, ...]) -> Iterator[Setting[Any]]:
    """The settings of all sections."""
    for section in sections:
        yield from section.settings


def _flag(text: str) -> bool:
    value = text.strip().lower()
    if value not in (*_ON, *_OFF):
        raise ValueError(text)
    return value in _ON


def _optional_flag(text: str) -> bool | None:
    return _flag(text)


def _number(text: str, minimum: float, maximum: float, is_whole: bool = False) -> float:
    """Raises ValueError for what is no number, NaN, or out of range. Whole numbers stay exact."""
    try:
        value: float = int(text)
    except ValueError:
        value = float(text)
    if not minimum <= value <= maximum or (is_whole and (math.isinf(value) or value != int(value))):
        raise ValueError(text)
    return value


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(text) from error


def _level(text: str) -> str:
    level = text.strip().upper()
    if level not in _LEVELS:
        raise ValueError(text)
    return level
