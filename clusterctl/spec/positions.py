"""YAML as nodes with positions: composing, duplicate keys, merge keys, scalars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a spec; not `is_fatal`: something that its reader ought to know. `line` and `column` count
    from 1."""

    line: int
    column: int
    path: Path
    message: str
    is_fatal: bool = True

    def render(self, file: str) -> str:
        """`file:line:column: key.path: message`."""
        where = f"{file}:{self.line}:{self.column}: "
        return where + (f"{render_path(self.path)}: " if self.path else "") + self.message


def render_path(path: Path) -> str:
    """`available_node_types.worker.setup_commands[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def compose(text: str) -> tuple[yaml.Node | None, list[Problem]]:
    """Parses one YAML document. Syntax errors come back as problems."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader), []
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        context = f" ({error.context})" if error.context else ""
        return None, [Problem(line, column, (), f"this is not YAML: {error.problem}{context}")]
    except yaml.YAMLError as error:
        return None, [Problem(1, 1, (), f"this is not YAML: {error}")]


def at(node: yaml.Node, path: Path, message: str, is_fatal: bool = True) -> Problem:
    """A problem at a node."""
    return Problem(node.start_mark.line + 1, node.start_mark.column + 1, path, message, is_fatal)


_constructor = yaml.constructor.SafeConstructor()


def scalar(node: yaml.ScalarNode) -> Any:
    """The scalar as Python value, by YAML's own rules.

    Raises:
        ValueError: it looks like a date or number and is none.
    """
    try:
        return _constructor.construct_object(node)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def entries(
    node: yaml.MappingNode, path: Path, problems: list[Problem]
) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yields (key, key node, value node) of a mapping, `<<` merged in. Reports duplicate and odd keys."""
    seen: dict[str, yaml.Node] = {}
    merged: list[yaml.MappingNode] = []
    own: list[tuple[str, yaml.Node, yaml.Node]] = []
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            sources = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            merged.extend(source for source in sources if isinstance(source, yaml.MappingNode))
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            problems.append(at(key_node, path, "a key must be plain text"))
            continue
        key = str(key_node.value)
        if key in seen:
            first = seen[key].start_mark.line + 1
            problems.append(
                at(key_node, (*path, key), f"duplicate key '{key}'; it is first given on line {first}")
            )
            continue
        seen[key] = key_node
        own.append((key, key_node, value_node))
    yield from own
    for source in merged:
        for key, key_node, value_node in entries(source, path, []):
            if key not in seen:
                seen[key] = key_node
                yield key, key_node, value_node


def describe(node: yaml.Node) -> str:
    """What a node is, in words for an error message."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    kind = str(node.tag).rsplit(":", 1)[-1]
    words = {
        "int": "the number",
        "float": "the number",
        "bool": "the boolean",
        "str": "the text",
        "timestamp": "the date",
    }
    if kind == "null":
        return "nothing"
    return f"{words.get(kind, kind)} {str(node.value)!r}"
