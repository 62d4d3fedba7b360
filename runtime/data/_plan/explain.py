"""Plans as text: one line for each node, what it reads from below it."""

from __future__ import annotations

from .nodes import Node


def explain(node: Node) -> str:
    """The plan, the last step first."""
    lines: list[str] = []

    def add(node: Node, depth: int) -> None:
        lines.append(f"{'   ' * (depth - 1)}{'+- ' if depth else ''}{node.name}")
        for each in node.inputs:
            add(each, depth + 1)

    add(node, 0)
    return "\n".join(lines)
