"""Converts positioned YAML into the types of `definition`, and collects every problem instead of the
first."""

from __future__ import annotations

import datetime
import difflib
import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from . import editing
from .positions import Path, Problem, at, describe, entries, render_path, scalar

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_MISSING = object()
_LARGEST = 2**63 - 1
_WITHIN = "a number from -2^63 to 2^63"
"""What every platform and every message can hold."""


@functools.cache
def _description(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)


class Reader:
    """One reading of one document. After `read`, `problems` says what is wrong and `warnings` what is not done,
    `nodes` where to point for each path (a collection's key, a scalar itself) and `values` the node of each value."""

    def __init__(self, environ: Mapping[str, str], homes: Mapping[str, list[Path]] | None = None) -> None:
        """Args:
        environ: for `${NAME}`.
        homes: key -> paths where it belongs, to explain misplaced keys.
        """
        self.environ = environ
        self._homes = homes or {}
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.nodes: dict[Path, yaml.Node] = {}
        self.values: dict[Path, yaml.Node] = {}

    def read(self, node: yaml.Node, kind: type[msgspec.Struct] | inspect.Type, path: Path = ()) -> Any:
        """Returns the value (builtins and Structs), or something unusable when `problems` grew."""
        described = kind if isinstance(kind, inspect.Type) else _description(kind)
        value = self._convert(node, described, path, env=False)
        return None if value is _MISSING else value

    def problem_at(self, path: Path, message: str) -> None:
        """Reports a problem at a key that was read (or at the nearest parent that was)."""
        self.problems.append(self._at(path, message, is_fatal=True))

    def warn_at(self, path: Path, message: str) -> None:
        """Like `problem_at`, of what is no problem and ought to be known."""
        self.warnings.append(self._at(path, message, is_fatal=False))

    def _at(self, path: Path, message: str, is_fatal: bool) -> Problem:
        length = next(length for length in range(len(path), -1, -1) if path[:length] in self.nodes)
        return at(self.nodes[path[:length]], path, message, is_fatal)

    # -- one method per shape; each returns _MISSING when the node cannot be used

    def _convert(self, node: yaml.Node, kind: inspect.Type, path: Path, env: bool) -> Any:
        self.nodes[path] = self.values[path] = node
        if isinstance(kind, inspect.Metadata):
            env = env or bool(kind.extra and kind.extra.get("env"))
            return self._convert(node, kind.type, path, env)
        if isinstance(kind, inspect.UnionType):
            return self._union(node, kind, path, env)
        if isinstance(kind, inspect.StructType):
            return self._struct(node, kind, path)
        if isinstance(kind, inspect.DictType):
            return self._mapping(node, kind, path, env)
        if isinstance(kind, inspect.ListType):
            if not isinstance(node, yaml.SequenceNode):
                return self._wrong(node, path, "a list", empty="[]")
            values = [
                self._convert(item, kind.item_type, (*path, index), env)
                for index, item in enumerate(node.value)
            ]
            return _MISSING if _MISSING in values else values
        if isinstance(kind, inspect.AnyType):
            return self._any(node, path)
        return self._scalar(node, kind, path, env)

    def _union(self, node: yaml.Node, kind: inspect.UnionType, path: Path, env: bool) -> Any:
        options = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
        if len(options) < len(kind.types) and node.tag == "tag:yaml.org,2002:null":
            return None
        if len(options) == 1:
            return self._convert(node, options[0], path, env)
        structs = [option for option in options if isinstance(option, inspect.StructType)]
        assert len(structs) == len(options), "several types are told apart by their tags"
        return self._tagged(node, structs, path)

    def _tagged(self, node: yaml.Node, kinds: list[inspect.StructType], path: Path) -> Any:
        """The one of several structs whose tag the mapping has."""
        field = str(kinds[0].tag_field)
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, "a mapping")
        tags = [value_node for key, _, value_node in entries(node, path, []) if key == field]
        if not tags:
            self.problems.append(at(node, path, f"the key '{field}' is missing"))
            return _MISSING
        value_node = tags[0]
        for kind in kinds:
            if isinstance(value_node, yaml.ScalarNode) and value_node.value == kind.tag:
                return self._struct(node, kind, path)
        what = f"'{value_node.value}'" if isinstance(value_node, yaml.ScalarNode) else describe(value_node)
        names = ", ".join(sorted(str(kind.tag) for kind in kinds))
        message = f"{path[-1]} {field} {what} is not available in this version; available: {names}"
        self.problems.append(at(value_node, (*path, field), message))
        return _MISSING

    def _struct(self, node: yaml.Node, kind: inspect.StructType, path: Path) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, "a mapping")
        fields = {field.encode_name: field for field in kind.fields}
        names = [*fields, *([kind.tag_field] if kind.tag_field else [])]
        values: dict[str, Any] = {}
        given: set[str] = set()
        sound = True
        for key, key_node, value_node in entries(node, path, self.problems):
            given.add(key)
            if key == kind.tag_field:
                continue
            if key not in fields:
                self.problems.append(at(key_node, (*path, key), self._unknown(key, names, path)))
                sound = False
            else:
                value = self._convert(value_node, fields[key].type, (*path, key), env=False)
                self.nodes[(*path, key)] = (
                    key_node if isinstance(value_node, yaml.CollectionNode) else value_node
                )
                sound &= value is not _MISSING
                values[fields[key].name] = value
        missing = [
            field.encode_name for field in kind.fields if field.required and field.encode_name not in given
        ]
        for name in missing:
            self.problems.append(at(node, path, f"the key '{name}' is missing"))
            sound = False
        return kind.cls(**values) if sound else _MISSING

    def _mapping(self, node: yaml.Node, kind: inspect.DictType, path: Path, env: bool) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, "a mapping", empty="" if kind.min_length else "{}")
        if len(node.value) < (kind.min_length or 0):
            self.problems.append(at(node, path, "expected at least one entry, got none"))
            return _MISSING
        out: dict[str, Any] = {}
        sound = True
        for key, key_node, value_node in entries(node, path, self.problems):
            if not self._check_text(key, kind.key_type, key_node, (*path, key)):
                sound = False
            value = self._convert(value_node, kind.value_type, (*path, key), env)
            self.nodes[(*path, key)] = key_node if isinstance(value_node, yaml.CollectionNode) else value_node
            sound &= value is not _MISSING
            out[key] = value
        return out if sound else _MISSING

    def _any(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(
                node,
                inspect.DictType(key_type=inspect.StrType(), value_type=inspect.AnyType()),
                path,
                env=True,
            )
        if isinstance(node, yaml.SequenceNode):
            values = [
                self._convert(item, inspect.AnyType(), (*path, i), True) for i, item in enumerate(node.value)
            ]
            return _MISSING if _MISSING in values else values
        try:
            value = scalar(node)  # type: ignore[arg-type]
        except ValueError as error:
            return self._wrong(node, path, str(error))
        if isinstance(value, datetime.date):
            value = str(node.value)  # no platform has dates: it is what is written there
        if isinstance(value, int | float) and not abs(value) <= _LARGEST:
            return self._wrong(node, path, _WITHIN)
        if not isinstance(value, str | int | float | None):
            return self._wrong(node, path, "text, a number, true or false")
        return self._expand(value, node, path) if isinstance(value, str) else value

    def _scalar(self, node: yaml.Node, kind: inspect.Type, path: Path, env: bool) -> Any:
        expected = {
            inspect.IntType: "a whole number",
            inspect.FloatType: "a number",
            inspect.BoolType: "true or false",
            inspect.StrType: "text",
        }[type(kind)]
        if not isinstance(node, yaml.ScalarNode):
            is_split = isinstance(node, yaml.MappingNode) and isinstance(kind, inspect.StrType)
            return self._wrong(
                node, path, f"{expected} (with ': ' in it, in quotes)" if is_split else expected
            )
        try:
            value = scalar(node)
        except ValueError:
            return self._wrong(node, path, expected)
        if env and isinstance(value, str):
            value = self._expand(value, node, path)
            if value is _MISSING:
                return _MISSING
        if isinstance(kind, inspect.BoolType):
            return value if isinstance(value, bool) else self._wrong(node, path, expected)
        if isinstance(kind, inspect.StrType):
            if not isinstance(value, str):
                advice = f'text (write it in quotes: "{node.value}")' if value is not None else "text"
                return self._wrong(node, path, advice)
            return value if self._check_text(value, kind, node, path) else _MISSING
        return self._number(value, kind, node, path, expected)

    def _number(self, value: Any, kind: inspect.Type, node: yaml.Node, path: Path, expected: str) -> Any:
        assert isinstance(kind, inspect.IntType | inspect.FloatType)
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d+)?[eE][+-]?\d+", value):
            value = float(value)  # YAML 1.1 takes 8e9 for text
        if isinstance(value, float) and isinstance(kind, inspect.IntType) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(
            value, int if isinstance(kind, inspect.IntType) else int | float
        ):
            return self._wrong(node, path, expected)
        bounds = (
            (kind.ge is not None and value < kind.ge, f"at least {kind.ge}"),
            (kind.gt is not None and value <= kind.gt, f"more than {kind.gt}"),
            (kind.le is not None and value > kind.le, f"at most {kind.le}"),
        )
        for broken, words in bounds:
            if broken:
                return self._wrong(node, path, f"{expected}, {words}")
        if value != value or abs(value) > _LARGEST:
            return self._wrong(node, path, _WITHIN)
        return float(value) if isinstance(kind, inspect.FloatType) else value

    def _check_text(self, value: str, kind: inspect.Type, node: yaml.Node, path: Path) -> bool:
        inner = kind.type if isinstance(kind, inspect.Metadata) else kind
        pattern = inner.pattern if isinstance(inner, inspect.StrType) else None
        if pattern and not re.search(pattern, value):
            allowed = "letters, digits, '-' and '_' only, at most 63, the first a letter or digit"
            self.problems.append(at(node, path, f"'{value}' is not a valid name: {allowed}"))
            return False
        return True

    def _expand(self, text: str, node: yaml.Node, path: Path) -> Any:
        unset: list[str] = []

        def replace(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(2)
            if name is None:
                return "${"
            if name not in self.environ and default is None:
                unset.append(name)
                return ""
            return self.environ.get(name) or default or ""

        expanded = _VARIABLE.sub(replace, text)
        for name in unset:
            self.problems.append(
                at(
                    node,
                    path,
                    f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}",
                )
            )
        return _MISSING if unset else expanded

    def _wrong(self, node: yaml.Node, path: Path, expected: str, empty: str = "") -> Any:
        """`empty`: how to write that there is none."""
        advice = f"; write {empty}, or remove the key" if empty and editing.is_null(node) else ""
        self.problems.append(at(node, path, f"expected {expected}, got {describe(node)}{advice}"))
        return _MISSING

    def _unknown(self, key: str, names: list[str], path: Path) -> str:
        homes = [home for home in self._homes.get(key, []) if home != path]
        if homes:
            places = " or ".join(render_path(home) or "the top level" for home in homes)
            return f"misplaced key '{key}'; it belongs in {places}"
        close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
        if close:
            return f"unknown key '{key}'; did you mean '{close[0]}'?"
        return f"unknown key '{key}'; valid here: {', '.join(sorted(names))}"
