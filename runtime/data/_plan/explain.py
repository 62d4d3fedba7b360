"""Plans as text: one line for each node, what it reads from below it."""

from __future__ import annotations

from .nodes import Node, Shared


def explain(node: Node) -> str:
    """The plan, the last step first. What is shared is written once, with a number."""
    lines: list[str] = []
    numbers: dict[int, int] = {}

    def add(node: Node, depth: int) -> None:
        is_new = id(node) not in numbers
        name = node.name
        if isinstance(node, Shared):
            name += f" #{numbers.setdefault(id(node), len(numbers) + 1)}"
        lines.append(f"{'   ' * (depth - 1)}{'+- ' if depth else ''}{name}")
        for each in node.inputs if is_new else ():
            add(each, depth + 1)

    add(node, 0)
    return "\n".join(lines)
