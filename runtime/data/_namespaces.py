"""Functions of expressions that belong to one kind of values: `col("name").str.upper()`, `col("when").dt.year()`.

The names are Ray's, the functions Arrow's (`pyarrow.compute`): patterns, widths and positions mean what they do there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

E = TypeVar("E")


class Namespace(Generic[E]):
    """Functions of one expression.

    Args:
        call: applies a function, by name and with options, to the expression.
    """

    def __init__(self, call: Callable[..., E]) -> None:
        self._call = call


def _simple(function: str, doc: str) -> Any:
    def method(self: Namespace[E]) -> E:
        return self._call(function)

    method.__doc__ = doc
    return method


def _with_pattern(function: str, doc: str) -> Any:
    def method(self: Namespace[E], pattern: str, **options: Any) -> E:
        return self._call(function, pattern=pattern, **options)

    method.__doc__ = doc
    return method


class StringNamespace(Namespace[E]):
    """Functions of strings."""

    len = _simple("utf8_length", "The number of characters.")
    byte_len = _simple("binary_length", "The number of bytes.")
    upper = _simple("utf8_upper", "In upper case.")
    lower = _simple("utf8_lower", "In lower case.")
    capitalize = _simple("utf8_capitalize", "With the first character in upper case.")
    title = _simple("utf8_title", "With the first character of each word in upper case.")
    swapcase = _simple("utf8_swapcase", "With upper and lower case exchanged.")
    reverse = _simple("utf8_reverse", "Backwards.")
    is_alpha = _simple("utf8_is_alpha", "Whether all are letters.")
    is_alnum = _simple("utf8_is_alnum", "Whether all are letters or digits.")
    is_digit = _simple("utf8_is_digit", "Whether all are digits.")
    is_decimal = _simple("utf8_is_decimal", "Whether all are decimal digits.")
    is_numeric = _simple("utf8_is_numeric", "Whether all are numeric characters.")
    is_space = _simple("utf8_is_space", "Whether all are whitespace.")
    is_lower = _simple("utf8_is_lower", "Whether all letters are in lower case.")
    is_upper = _simple("utf8_is_upper", "Whether all letters are in upper case.")
    is_title = _simple("utf8_is_title", "Whether each word begins in upper case.")
    is_printable = _simple("utf8_is_printable", "Whether all are printable.")
    is_ascii = _simple("string_is_ascii", "Whether all are ASCII.")
    split_whitespace = _simple("utf8_split_whitespace", "The words, as a list.")
    starts_with = _with_pattern("starts_with", "Whether it begins with the pattern, which is plain text.")
    ends_with = _with_pattern("ends_with", "Whether it ends with the pattern, which is plain text.")
    contains = _with_pattern("match_substring", "Whether the pattern, plain text, is in it.")
    match = _with_pattern("match_like", "Whether it is like the SQL pattern, with % and _.")
    match_regex = _with_pattern("match_substring_regex", "Whether the regular expression is found in it.")
    find = _with_pattern("find_substring", "The position of the pattern in bytes, -1 if it is not in it.")
    find_regex = _with_pattern("find_substring_regex", "The position of the regular expression, or -1.")
    count = _with_pattern("count_substring", "How often the pattern is in it.")
    count_regex = _with_pattern("count_substring_regex", "How often the regular expression is in it.")
    split = _with_pattern("split_pattern", "The parts between the pattern, as a list.")
    split_regex = _with_pattern("split_pattern_regex", "The parts between matches, as a list.")
    extract = _with_pattern("extract_regex", "A struct of the regular expression's named groups.")

    def replace(self, pattern: str, replacement: str, **options: Any) -> E:
        """With the replacement in place of the pattern."""
        return self._call("replace_substring", pattern=pattern, replacement=replacement, **options)

    def replace_regex(self, pattern: str, replacement: str, **options: Any) -> E:
        """With the replacement in place of matches of the regular expression."""
        return self._call("replace_substring_regex", pattern=pattern, replacement=replacement, **options)

    def replace_slice(self, start: int, stop: int, replacement: str) -> E:
        """With the replacement in place of the characters from start to stop."""
        return self._call("utf8_replace_slice", start=start, stop=stop, replacement=replacement)

    def slice(self, start: int, stop: int | None = None, step: int = 1) -> E:
        """The characters from start to stop."""
        return self._call("utf8_slice_codeunits", start=start, stop=stop, step=step)

    def repeat(self, n: int) -> E:
        """Written n times."""
        return self._call("binary_repeat", n)

    def strip(self, characters: str | None = None) -> E:
        """Without whitespace, or these characters, at both ends."""
        return self._trim("utf8_trim", characters)

    def lstrip(self, characters: str | None = None) -> E:
        """Without whitespace, or these characters, at the start."""
        return self._trim("utf8_ltrim", characters)

    def rstrip(self, characters: str | None = None) -> E:
        """Without whitespace, or these characters, at the end."""
        return self._trim("utf8_rtrim", characters)

    def _trim(self, function: str, characters: str | None) -> E:
        if characters is None:
            return self._call(f"{function}_whitespace")
        return self._call(function, characters=characters)

    def lpad(self, width: int, padding: str = " ") -> E:
        """Filled at the start up to the width."""
        return self._call("utf8_lpad", width=width, padding=padding)

    def rpad(self, width: int, padding: str = " ") -> E:
        """Filled at the end up to the width."""
        return self._call("utf8_rpad", width=width, padding=padding)

    def center(self, width: int, padding: str = " ") -> E:
        """Filled at both ends up to the width."""
        return self._call("utf8_center", width=width, padding=padding)

    def pad(self, width: int, fillchar: str = " ", side: str = "right") -> E:
        """Filled up to the width at "left", "right" or "both" sides."""
        functions = {"left": "utf8_lpad", "right": "utf8_rpad", "both": "utf8_center"}
        if side not in functions:
            raise ValueError(f"side {side!r} is none of left, right, both")
        return self._call(functions[side], width=width, padding=fillchar)


class ListNamespace(Namespace[E]):
    """Functions of lists."""

    len = _simple("list_value_length", "The number of elements.")
    flatten = _simple("list_join", "Lists of lists as lists of their elements.")

    def get(self, index: int) -> E:
        """The element at an index, from the end if it is negative; null where there is none."""
        return self._call("list_get", index=index)

    def __getitem__(self, index: int) -> E:
        return self.get(index)

    def slice(self, start: int | None = None, stop: int | None = None, step: int | None = None) -> E:
        """The elements from start to stop, as Python's slices."""
        return self._call("list_cut", start=start, stop=stop, step=step)

    def sort(self, order: str = "ascending", null_placement: str = "at_end") -> E:
        """The elements in order: "ascending" or "descending", nulls "at_start" or "at_end"."""
        return self._call("list_sorted", order=order, null_placement=null_placement)


class StructNamespace(Namespace[E]):
    """Functions of structs."""

    def field(self, field_name: str) -> E:
        """A field by its name."""
        return self._call("struct_field", indices=[field_name])

    def field_by_index(self, index: int) -> E:
        """A field by its number."""
        return self._call("struct_field", indices=[index])

    def __getitem__(self, field: str | int) -> E:
        return self._call("struct_field", indices=[field])


class MapNamespace(Namespace[E]):
    """Functions of maps."""

    keys = _simple("map_keys", "The keys as lists.")
    values = _simple("map_values", "The values as lists.")


class ArrayNamespace(Namespace[E]):
    """Functions of tensors and lists of one length."""

    to_list = _simple("to_list", "As lists.")


class DatetimeNamespace(Namespace[E]):
    """Functions of dates and timestamps."""

    year = _simple("year", "The year.")
    month = _simple("month", "The month, from 1.")
    day = _simple("day", "The day of the month, from 1.")
    hour = _simple("hour", "The hour.")
    minute = _simple("minute", "The minute.")
    second = _simple("second", "The second.")

    def strftime(self, fmt: str) -> E:
        """As text, in a format of `strftime`."""
        return self._call("strftime", format=fmt)

    def ceil(self, unit: str) -> E:
        """Rounded up to a unit, e.g. "day"."""
        return self._call("ceil_temporal", unit=unit)

    def floor(self, unit: str) -> E:
        """Rounded down to a unit, e.g. "day"."""
        return self._call("floor_temporal", unit=unit)

    def round(self, unit: str) -> E:
        """Rounded to a unit, e.g. "day"."""
        return self._call("round_temporal", unit=unit)
