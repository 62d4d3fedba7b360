"""The tree of expressions: columns, literals, functions of them, names."""

from __future__ import annotations

import builtins
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from runtime.data._block import functions
from runtime.data._namespaces import (
    ArrayNamespace,
    DatetimeNamespace,
    ListNamespace,
    MapNamespace,
    StringNamespace,
    StructNamespace,
)
from runtime.data.datatype import arrow_type

_OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "modulo": "%",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "and_kleene": "&",
    "or_kleene": "|",
}


@dataclass(frozen=True, slots=True)
class Position:
    """Where a block is in the data set, for expressions whose values depend on it."""

    task: int = 0
    """Number of the task, or of the block, that is evaluated: another one for each."""
    row: int = 0
    """Rows of the task before this block."""


FIRST = Position()
"""The first block."""


@dataclass(frozen=True, eq=False, repr=False)
class Expr:
    """A node of an expression. Operators, and the methods here, make larger ones; `==` too, so compare two
    expressions by `structurally_equals`.
    """

    def evaluate(self, table: pa.Table, position: Position = FIRST) -> pa.Array | pa.ChunkedArray:
        """The expression's value for each row of a block.

        Raises:
            KeyError: a column is missing.
        """
        value = self._value(table, position)
        if not isinstance(value, pa.Scalar):
            return value
        return pa.repeat(value, table.num_rows) if table.num_rows else pa.array([], value.type)

    def _value(self, table: pa.Table, position: Position) -> Any:
        """A column, or a scalar if it is the same for all rows."""
        raise TypeError(f"{self!r} has no value of its own: it stands for columns in a projection")

    def to_arrow(self) -> pc.Expression | None:
        """The same as an expression of Arrow, for readers; None if a part of it is not Arrow's."""
        try:
            return self._arrow()
        except NotImplementedError:
            return None

    def _arrow(self) -> Any:
        raise NotImplementedError

    def to_pyarrow(self) -> pc.Expression:
        """As `to_arrow`, but raises.

        Raises:
            TypeError: a part of it is not Arrow's.
        """
        made = self.to_arrow()
        if made is None:
            raise TypeError(f"{self!r} cannot be expressed in Arrow's expressions")
        return made

    def children(self) -> tuple[Expr, ...]:
        """The expressions that it is made of."""
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """The same of other expressions."""
        return self

    def columns(self) -> set[builtins.str]:
        """The columns that it reads."""
        return {name for child in self.children() for name in child.columns()}

    def replace_columns(self, by: Mapping[builtins.str, Expr]) -> Expr:
        """The expression with other expressions in place of columns."""
        children = self.children()
        return self.with_children([child.replace_columns(by) for child in children]) if children else self

    def is_idempotent(self) -> bool:
        """Whether evaluating it again gives the same, wherever the rows are."""
        return all(child.is_idempotent() for child in self.children())

    def fingerprint(self) -> Hashable:
        """Equal for expressions that are built alike."""
        return (type(self).__name__, *(child.fingerprint() for child in self.children()))

    def structurally_equals(self, other: Any) -> bool:
        """Whether the other is built alike."""
        return isinstance(other, Expr) and self.fingerprint() == other.fingerprint()

    def expand_projection(self, input_schema: pa.Schema | None) -> builtins.list[Expr]:
        """The expressions that it stands for in a projection: itself, unless it is `star()` or `unnest(...)`."""
        return [self]

    def get_type(self, input_schema: pa.Schema) -> pa.DataType:
        """The type of its values for blocks of a schema."""
        return self.evaluate(input_schema.empty_table()).type

    def to_field(self, input_schema: pa.Schema) -> pa.Field:
        """The field of its values, for an expression with a name."""
        if self.name is None:
            raise ValueError(f"{self!r} has no name: give it one by alias()")
        return pa.field(self.name, self.get_type(input_schema))

    @property
    def name(self) -> builtins.str | None:
        """The name of its column in a projection, if it has one."""
        return None

    def alias(self, name: builtins.str) -> Expr:
        """The same under a name."""
        return AliasExpr(self, name)

    def call(self, function: builtins.str, *args: Any, **options: Any) -> Expr:
        """A function of `pyarrow.compute` on it, e.g. `col("x").call("bit_wise_and", 3)`."""
        return FunctionExpr(function, (self, *(expression(arg) for arg in args)), tuple(options.items()))

    def __add__(self, other: Any) -> Expr:
        return self.call("add", other)

    def __radd__(self, other: Any) -> Expr:
        return expression(other).call("add", self)

    def __sub__(self, other: Any) -> Expr:
        return self.call("subtract", other)

    def __rsub__(self, other: Any) -> Expr:
        return expression(other).call("subtract", self)

    def __mul__(self, other: Any) -> Expr:
        return self.call("multiply", other)

    def __rmul__(self, other: Any) -> Expr:
        return expression(other).call("multiply", self)

    def __truediv__(self, other: Any) -> Expr:
        """Of integers an integer, rounded towards zero, as Arrow and Ray divide."""
        return self.call("divide", other)

    def __rtruediv__(self, other: Any) -> Expr:
        return expression(other).call("divide", self)

    def __floordiv__(self, other: Any) -> Expr:
        return self.call("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return expression(other).call("floor_divide", self)

    def __mod__(self, other: Any) -> Expr:
        return self.call("modulo", other)

    def __rmod__(self, other: Any) -> Expr:
        return expression(other).call("modulo", self)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return self.call("equal", other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return self.call("not_equal", other)

    def __lt__(self, other: Any) -> Expr:
        return self.call("less", other)

    def __le__(self, other: Any) -> Expr:
        return self.call("less_equal", other)

    def __gt__(self, other: Any) -> Expr:
        return self.call("greater", other)

    def __ge__(self, other: Any) -> Expr:
        return self.call("greater_equal", other)

    def __and__(self, other: Any) -> Expr:
        return self.call("and_kleene", other)

    def __rand__(self, other: Any) -> Expr:
        return expression(other).call("and_kleene", self)

    def __or__(self, other: Any) -> Expr:
        return self.call("or_kleene", other)

    def __ror__(self, other: Any) -> Expr:
        return expression(other).call("or_kleene", self)

    def __invert__(self) -> Expr:
        return self.call("invert")

    def __neg__(self) -> Expr:
        return self.call("negate")

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r} is true or false for each row, not as a whole: combine expressions by &, | and ~ "
            "rather than and, or and not"
        )

    __hash__ = object.__hash__

    def is_null(self) -> Expr:
        """Whether it is null."""
        return self.call("is_null")

    def is_not_null(self) -> Expr:
        """Whether it is not null."""
        return self.call("is_valid")

    def is_in(self, values: Any) -> Expr:
        """Whether it is one of some values: a list, or a literal of one."""
        return FunctionExpr(
            "is_in_values", (self, values if isinstance(values, Expr) else LiteralExpr(builtins.list(values)))
        )

    def not_in(self, values: Any) -> Expr:
        """Whether it is none of some values."""
        return ~self.is_in(values)

    def cast(self, target_type: Any, *, safe: bool = True) -> Expr:
        """In another type: a DataType, or a type of Arrow.

        Args:
            safe: whether a value that does not fit is an error; otherwise it overflows or is cut.
        """
        return self.call("as_type", kind=arrow_type(target_type), safe=safe)

    def abs(self) -> Expr:
        """The absolute value."""
        return self.call("abs")

    def negate(self) -> Expr:
        """With the other sign."""
        return self.call("negate")

    def sign(self) -> Expr:
        """-1, 0 or 1."""
        return self.call("sign")

    def power(self, exponent: Any) -> Expr:
        """To a power."""
        return self.call("power", exponent)

    def round(self, decimals: int = 0) -> Expr:
        """Rounded to a number of decimals; halves to even."""
        return self.call("round", ndigits=decimals) if decimals else self.call("round")

    def ceil(self) -> Expr:
        """Rounded up."""
        return self.call("ceil")

    def floor(self) -> Expr:
        """Rounded down."""
        return self.call("floor")

    def trunc(self) -> Expr:
        """Rounded towards zero."""
        return self.call("trunc")

    def sqrt(self) -> Expr:
        """The square root."""
        return self.call("sqrt")

    def exp(self) -> Expr:
        """e to the power of it."""
        return self.call("exp")

    def ln(self) -> Expr:
        """The natural logarithm."""
        return self.call("ln")

    def log10(self) -> Expr:
        """The logarithm to base 10."""
        return self.call("log10")

    def log2(self) -> Expr:
        """The logarithm to base 2."""
        return self.call("log2")

    def sin(self) -> Expr:
        """The sine of radians."""
        return self.call("sin")

    def cos(self) -> Expr:
        """The cosine of radians."""
        return self.call("cos")

    def tan(self) -> Expr:
        """The tangent of radians."""
        return self.call("tan")

    def asin(self) -> Expr:
        """The arc sine, in radians."""
        return self.call("asin")

    def acos(self) -> Expr:
        """The arc cosine, in radians."""
        return self.call("acos")

    def atan(self) -> Expr:
        """The arc tangent, in radians."""
        return self.call("atan")

    @property
    def str(self) -> StringNamespace[Expr]:
        """Functions of strings."""
        return StringNamespace(self.call)

    @property
    def list(self) -> ListNamespace[Expr]:
        """Functions of lists."""
        return ListNamespace(self.call)

    @property
    def struct(self) -> StructNamespace[Expr]:
        """Functions of structs."""
        return StructNamespace(self.call)

    @property
    def map(self) -> MapNamespace[Expr]:
        """Functions of maps."""
        return MapNamespace(self.call)

    @property
    def arr(self) -> ArrayNamespace[Expr]:
        """Functions of tensors."""
        return ArrayNamespace(self.call)

    @property
    def dt(self) -> DatetimeNamespace[Expr]:
        """Functions of dates and timestamps."""
        return DatetimeNamespace(self.call)


@dataclass(frozen=True, eq=False, repr=False)
class ColumnExpr(Expr):
    """A column."""

    _name: str

    def _value(self, table: pa.Table, position: Position) -> Any:
        if self._name not in table.column_names:
            known = ", ".join(map(repr, table.column_names))
            raise KeyError(f"there is no column {self._name!r}; columns are {known}")
        return table.column(self._name)

    def _arrow(self) -> Any:
        return pc.field(self._name)

    def columns(self) -> set[str]:
        return {self._name}

    def replace_columns(self, by: Mapping[str, Expr]) -> Expr:
        return by.get(self._name, self)

    def fingerprint(self) -> Hashable:
        return ("column", self._name)

    @property
    def name(self) -> str | None:
        return self._name

    def __repr__(self) -> str:
        return f"col({self._name!r})"


@dataclass(frozen=True, eq=False, repr=False)
class LiteralExpr(Expr):
    """A value that is the same for all rows."""

    value: Any

    def _value(self, table: pa.Table, position: Position) -> Any:
        return pa.scalar(self.value)

    def _arrow(self) -> Any:
        return pc.scalar(self.value)

    def fingerprint(self) -> Hashable:
        return ("literal", type(self.value).__name__, repr(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class FunctionExpr(Expr):
    """A function of expressions: one of `pyarrow.compute`, or of `_block.functions`."""

    function: str
    args: tuple[Expr, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def _value(self, table: pa.Table, position: Position) -> Any:
        args = [arg._value(table, position) for arg in self.args]
        try:
            return functions.call(self.function, args, dict(self.options))
        except (pa.ArrowException, TypeError) as error:
            error.add_note(f"in the expression {self!r}")
            raise

    def _arrow(self) -> Any:
        args = [arg._arrow() for arg in self.args]
        if self.function == "is_in_values" and isinstance(self.args[1], LiteralExpr):
            return pc.is_in(args[0], value_set=pa.array(self.args[1].value))
        return functions.call(self.function, args, dict(self.options))

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return FunctionExpr(self.function, tuple(children), self.options)

    def fingerprint(self) -> Hashable:
        return (self.function, repr(self.options), *(arg.fingerprint() for arg in self.args))

    def __repr__(self) -> str:
        if self.function in _OPERATORS:
            left, right = self.args
            return f"({left!r} {_OPERATORS[self.function]} {right!r})"
        told = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.options)]
        return f"{self.function}({', '.join(told)})"


@dataclass(frozen=True, eq=False, repr=False)
class AliasExpr(Expr):
    """An expression under a name."""

    expr: Expr
    _name: str

    def _value(self, table: pa.Table, position: Position) -> Any:
        return self.expr._value(table, position)

    def _arrow(self) -> Any:
        return self.expr._arrow()

    def children(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return AliasExpr(children[0], self._name)

    def fingerprint(self) -> Hashable:
        return ("alias", self._name, self.expr.fingerprint())

    @property
    def name(self) -> str | None:
        return self._name

    def __repr__(self) -> str:
        return f"{self.expr!r}.alias({self._name!r})"


def expression(value: Any) -> Expr:
    """The expression itself, or the literal of a value."""
    return value if isinstance(value, Expr) else LiteralExpr(value)
