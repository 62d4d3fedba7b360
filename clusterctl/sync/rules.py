"""Which files of a folder travel: rsync's exclude patterns, and ignore files in .gitignore's language. Pure.

The patterns are those of rsync's manual page: `/` at the start ties a pattern to the root, `/` at the end means
folders only, a pattern with a `/` or `**` in it is matched with the end of the whole path, any other with the last
name; `*` and `?` stop at `/`, `**` does not, and `folder/***` is the folder with all that is in it. `+ PATTERN` lets
in what a later one would leave out: the first that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runtime._packages.ignore import in_brackets

GIT = ".git"
IGNORE_FILES = (".gitignore",)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern of rsync's."""

    expression: re.Pattern[str]
    whole_path: bool
    folders_only: bool
    lets_in: bool

    def matches(self, path: str, is_folder: bool) -> bool:
        """`path` is relative to the root, without a `/` at either end."""
        if self.folders_only and not is_folder:
            return False
        text = "/" + path if self.whole_path else path.rpartition("/")[2]
        return self.expression.fullmatch(text) is not None


def pattern(text: str) -> Pattern:
    """Reads one pattern."""
    lets_in = text.startswith("+ ")
    if lets_in or text.startswith("- "):
        text = text[2:].strip()
    anchored = text.startswith("/")
    everything_in = text.endswith("/***")
    body = text.removesuffix("/***").lstrip("/") if everything_in else text.strip("/")
    whole_path = anchored or everything_in or "/" in body or "**" in body
    expression = _translate(body)
    if whole_path:
        expression = ("/" if anchored else "(?:.*/|/)?/?") + expression
    if everything_in:
        expression += "(?:/.*)?"
    folders_only = text.endswith("/") and not everything_in
    return Pattern(re.compile(expression, re.DOTALL), whole_path, folders_only, lets_in)


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays behind. `ignore_files`: names of files whose lines count, in .gitignore's language, for their folder
    and those below."""

    patterns: tuple[Pattern, ...] = ()
    ignore_files: tuple[str, ...] = ()

    def leaves_out(self, path: str, is_folder: bool) -> bool:
        """Whether the patterns, without the ignore files, leave it out."""
        for one in self.patterns:
            if one.matches(path, is_folder):
                return not one.lets_in
        return path.rpartition("/")[2] == GIT

    def lets_in(self, path: str, is_folder: bool) -> bool:
        """Whether a pattern lets it in by name, whatever the ignore files say."""
        for one in self.patterns:
            if one.matches(path, is_folder):
                return one.lets_in
        return False


def rules(excludes: Sequence[str] = (), ignore_files: Sequence[str] = IGNORE_FILES) -> Rules:
    """The rules of a spec's `rsync_exclude` and `rsync_filter`."""
    return Rules(tuple(pattern(text) for text in excludes if text.strip()), tuple(ignore_files))


def _translate(text: str) -> str:
    """Glob to regular expression."""
    out, index = "", 0
    while index < len(text):
        char = text[index]
        if text.startswith("**", index):
            while text[index : index + 1] == "*":
                index += 1
            out += ".*"
            continue
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := text.find("]", index + 2)) > 0:
            out += in_brackets(text[index + 1 : end])
            index = end
        elif char == "\\" and index + 1 < len(text):
            index += 1
            out += re.escape(text[index])
        else:
            out += re.escape(char)
        index += 1
    return out
