#!/usr/bin/env python3
"""Fails when modules of one of the packages import each other in a circle.

Every import statement counts: those inside functions, and those that only the type checker sees (`if TYPE_CHECKING`).
A circle that exists only for the type checker is reported as such.

    scripts/import_cycles.py [--root FOLDER] PACKAGE...
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Import(NamedTuple):
    """One imported name: of a module or of something in it."""

    name: str
    for_types_only: bool


class Cycle(NamedTuple):
    """Modules that import each other, directly or through others of them."""

    modules: frozenset[str]
    for_types_only: bool


Graph = Mapping[str, set[str]]


def modules(root: pathlib.Path, package: str) -> dict[str, pathlib.Path]:
    """The files of all modules of a package, by dotted name."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, is_package: bool, source: str) -> Iterator[Import]:
    """What a module imports, wherever in it. `from a import b` gives `a.b`, which may be a module or a name in `a`."""
    package = name if is_package else name.rpartition(".")[0]
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while todo:
        node, for_types = todo.pop()
        if isinstance(node, ast.If) and _asks_for_type_checking(node.test):
            todo += ((child, True) for child in node.body)
            todo += ((child, for_types) for child in node.orelse)
            continue
        todo += ((child, for_types) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, for_types)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", for_types)


def _asks_for_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def graphs(files: Mapping[str, pathlib.Path]) -> tuple[Graph, Graph]:
    """Which module imports which: of everything, and without what only the type checker sees."""
    everything: dict[str, set[str]] = {name: set() for name in files}
    at_run_time: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for imported in imports(name, path.name == "__init__.py", path.read_text(encoding="utf-8")):
            target = _module_of(imported.name, files)
            if target is None or target == name:
                continue
            everything[name].add(target)
            if not imported.for_types_only:
                at_run_time[name].add(target)
    return everything, at_run_time


def _module_of(name: str, files: Mapping[str, pathlib.Path]) -> str | None:
    if name in files:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in files else None


def circles(graph: Graph) -> list[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan 1972), without recursion."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []
    is_open: set[str] = set()
    found = []
    for start in graph:
        if start in order:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, iter(sorted(graph[start])))]
        order[start] = lowest[start] = len(order)
        open_nodes.append(start)
        is_open.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in order:
                    order[target] = lowest[target] = len(order)
                    open_nodes.append(target)
                    is_open.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in is_open:
                    lowest[node] = min(lowest[node], order[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    members = set()
                    while node not in members:
                        members.add(open_nodes.pop())
                    is_open -= members
                    if len(members) > 1:
                        found.append(frozenset(members))
    return sorted(found, key=lambda circle: (-len(circle), sorted(circle)))


def cycles(root: pathlib.Path, package: str) -> list[Cycle]:
    """All circles of a package. One that needs imports of the type checker contains those that do not."""
    everything, at_run_time = graphs(modules(root, package))
    running = circles(at_run_time)
    for_types = [circle for circle in circles(everything) if circle not in running]
    return [Cycle(circle, False) for circle in running] + [Cycle(circle, True) for circle in for_types]


def main() -> int:
    """Prints the circles; the exit status says whether there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the folder that holds the package")
    parser.add_argument("packages", nargs="+", metavar="PACKAGE")
    options = parser.parse_args()
    found = [cycle for package in options.packages for cycle in cycles(options.root, package)]
    for cycle in found:
        kind = "for the type checker only" if cycle.for_types_only else "at run time"
        print(f"{len(cycle.modules)} modules import each other ({kind}): {', '.join(sorted(cycle.modules))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
