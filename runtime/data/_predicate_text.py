"""Predicates as text, for example "age >= 18 and city in ['Rome', 'Oslo']": Python's syntax, read into expressions."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from runtime.data._expression import Expr
from runtime.data.expressions import col, lit

_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Expr, Any], Expr]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def parse(text: str) -> Expr:
    """The expression that a text means. Names are columns; text is never executed.

    Known are constants, lists, arithmetic, comparisons (also chains), `in`, `is None`,
    `and`, `or`, `not`, `&`, `|` and `~`.

    Raises:
        ValueError: it is no expression in Python's syntax, or has something else in it; says what.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(
            f"The predicate {text!r} is no expression in Python's syntax: {error.msg}."
        ) from None
    return _Reader(text).expression(tree.body)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def expression(self, node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name):
                return col(name)
            case ast.Constant(value=value):
                return lit(value)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._expr(_BINARY[type(op)](self.expression(left), self.expression(right)))
            case ast.BoolOp(op=op, values=values):
                both = operator.and_ if isinstance(op, ast.And) else operator.or_
                return self._expr(functools.reduce(both, map(self.expression, values)))
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return self._expr(~self.expression(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return (
                    self._expr(lit(0) - self.expression(operand))
                    if _is_column(operand)
                    else self._value(node)
                )
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                pairs = [
                    self._compared(first, op, second)
                    for first, op, second in zip(sides, ops, others, strict=False)
                ]
                return functools.reduce(operator.and_, pairs)
        raise self._refused(node)

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Expr:
        if type(op) in _COMPARISONS:
            return self._expr(_COMPARISONS[type(op)](self.expression(left), self.expression(right)))
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple | ast.Set):
            values = [self._constant(each) for each in right.elts]
            tested = self.expression(left)
            return tested.is_in(values) if isinstance(op, ast.In) else tested.not_in(values)
        if isinstance(op, ast.Is | ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
            tested = self.expression(left)
            return tested.is_null() if isinstance(op, ast.Is) else tested.is_not_null()
        raise self._refused(right)

    def _value(self, node: ast.expr) -> Expr:
        return lit(self._constant(node))

    def _constant(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError:
            raise self._refused(node) from None

    def _expr(self, value: Any) -> Expr:
        assert isinstance(value, Expr)
        return value

    def _refused(self, node: ast.expr) -> ValueError:
        part = ast.get_source_segment(self._text.strip(), node) or type(node).__name__
        return ValueError(
            f"The predicate {self._text!r} has {part!r} in it, which predicates as text do not know: "
            "use an expression, for example col('a') > 1, or a function."
        )


def _is_column(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) for each in ast.walk(node))
