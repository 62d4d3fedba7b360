"""YAML as nodes with positions: composing, aliases and merge keys, duplicate keys, scalars."""

from __future__ import annotations

import re
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
    """Parses one YAML document, with merge keys carried out. Syntax errors come back as problems. What comes back is
    no deeper and, each alias counted, no larger than any reader of it can bear."""
    try:
        root = _document(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        context, problem = str(error.context or ""), str(error.problem)
        words = f"{problem} ({context})" if context.startswith("while") else f"{context} {problem}".strip()
        tab = "; YAML is indented by spaces, not by tabs" if r"'\t'" in words else ""
        return None, [Problem(line, column, (), f"this is not YAML: {words}{tab}")]
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return None, [
            Problem(line, column, (), f"this is not YAML: the character {error.character:#04x} is in it")
        ]
    except RecursionError:
        return None, [Problem(1, 1, (), _TOO_DEEP)]
    if root is None:
        return None, []
    problems: list[Problem] = []
    _resolve(root, {}, set(), problems)
    return (None, problems) if problems else (root, [])


def _document(text: str) -> yaml.Node | None:
    """As PyYAML has it. Of an escape such as "\\UFFFFFFFF", for which there is no character, PyYAML does not say where
    it is."""
    loader = yaml.SafeLoader(text)
    try:
        root: yaml.Node | None = loader.get_single_node()
        return root
    except (OverflowError, ValueError) as error:
        problem = f"an escape that stands for no character: {error}"
        raise yaml.scanner.ScannerError(None, None, problem, loader.get_mark()) from error
    finally:
        loader.dispose()


_MAPPING, _SEQUENCE, _MERGE = (f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "merge"))
_SURROGATE = re.compile("[\ud800-\udfff]")
_DEEPEST = 100
_LARGEST = 200_000
_TOO_DEEP = f"it is nested more than {_DEEPEST} levels deep"


def _resolve(
    node: yaml.Node, known: dict[int, tuple[int, int]], inside: set[int], problems: list[Problem]
) -> tuple[int, int]:
    """Carries merge keys out at a node and below; returns how many nodes and levels that are, each alias counted."""
    if not isinstance(node, yaml.CollectionNode):
        if _SURROGATE.search(str(node.value)):
            problems.append(
                at(node, (), "an escape in it stands for half a character, which no file can hold")
            )
        return 1, 1
    if id(node) in known:
        return known[id(node)]
    if id(node) in inside:
        problems.append(at(node, (), "it contains itself, through an alias"))
        return 1, 1
    if node.tag not in (_MAPPING, _SEQUENCE):
        problems.append(at(node, (), f"the tag {node.tag} means nothing here; remove it"))
    inside.add(id(node))
    size, levels = 1, 1
    for child in (part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))):
        more, below = _resolve(child, known, inside, problems)
        size, levels = size + more, max(levels, below + 1)
    inside.discard(id(node))
    known[id(node)] = size, levels
    if not problems and levels > _DEEPEST:
        problems.append(at(node, (), _TOO_DEEP))
    if not problems and size > _LARGEST:
        problems.append(at(node, (), f"it has more than {_LARGEST} parts, through its aliases"))
    if isinstance(node, yaml.MappingNode):
        _merge(node, problems)
    return size, levels


def _merge(node: yaml.MappingNode, problems: list[Problem]) -> None:
    """Puts what `<<` names into the mapping itself: its own keys go before these, the first source before others."""
    sources: list[yaml.Node] = []
    for key, value in node.value:
        if key.tag == _MERGE:
            sources += value.value if isinstance(value, yaml.SequenceNode) else [value]
    node.value = [pair for pair in node.value if pair[0].tag != _MERGE]
    for source in sources:
        if not isinstance(source, yaml.MappingNode):
            problems.append(at(source, (), f"<< takes mappings, got {describe(source)}"))
            continue
        own = {str(key.value) for key, _ in node.value}
        node.value += [pair for pair in source.value if str(pair[0].value) not in own]


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
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # Those of PyYAML itself, which does not expect that a tag is on what cannot have it.
        raise ValueError(str(error)) from error


def entries(
    node: yaml.MappingNode, path: Path, problems: list[Problem]
) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yields (key, key node, value node) of a mapping. Reports duplicate and odd keys."""
    seen: dict[str, yaml.Node] = {}
    for key_node, value_node in node.value:
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
