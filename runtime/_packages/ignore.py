"""Which paths a .gitignore leaves out. Pure; the rules are those of the gitignore manual page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """One line. `base` is the folder of its file, relative to the root ("" for the root)."""

    base: str
    pattern: re.Pattern[str]
    negated: bool
    folders_only: bool

    def matches(self, path: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        if self.base:
            if not path.startswith(self.base + "/"):
                return False
            path = path[len(self.base) + 1 :]
        return self.pattern.fullmatch(path) is not None


def parse(text: str, base: str = "") -> list[Rule]:
    """The rules of one file, in its order."""
    rules = []
    for line in text.splitlines():
        line = re.sub(r"(?<!\\)\s+$", "", line)
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        folders_only = line.endswith("/")
        line = line.rstrip("/") if folders_only else line
        anchored = "/" in line
        line = line.removeprefix("/")
        if line:
            prefix = "" if anchored else "(?:.*/)?"
            rules.append(Rule(base, re.compile(prefix + _translate(line), re.DOTALL), negated, folders_only))
    return rules


def ignored(path: str, is_folder: bool, rules: Iterable[Rule]) -> bool:
    """Whether the last rule that matches leaves the path out. Folders above are the caller's matter."""
    verdict = False
    for rule in rules:
        if rule.matches(path, is_folder):
            verdict = not rule.negated
    return verdict


def in_brackets(body: str) -> str:
    """Regular expression of what a glob has between `[` and `]`. A range that goes backwards matches nothing."""
    body = body.replace("\\", "\\\\").replace("[", "\\[")
    body = "^" + body[1:] if body[0] in "!^" else body
    try:
        re.compile(f"[{body}]")
    except re.error:
        return "(?!)"
    return f"(?!/)[{body}]"


def _translate(pattern: str) -> str:
    """Glob to regular expression: `*` and `?` stop at `/`, `**` does not."""
    out, index = "", 0
    while index < len(pattern):
        if pattern.startswith("**/", index) and (index == 0 or pattern[index - 1] == "/"):
            out, index = out + "(?:.*/)?", index + 3
        elif pattern[index:] == "**" and index and pattern[index - 1] == "/":
            out, index = out + ".+", index + 2
        elif pattern[index] == "*":
            while pattern[index : index + 1] == "*":
                index += 1
            out += "[^/]*"
        elif pattern[index] == "?":
            out, index = out + "[^/]", index + 1
        elif pattern[index] == "[" and (end := pattern.find("]", index + 2)) > 0:
            out, index = out + in_brackets(pattern[index + 1 : end]), end + 1
        elif pattern[index] == "\\" and index + 1 < len(pattern):
            out, index = out + re.escape(pattern[index + 1]), index + 2
        else:
            out, index = out + re.escape(pattern[index]), index + 1
    return out
