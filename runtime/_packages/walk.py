"""Goes through a folder as all that sends files does: sorted, links not followed, ignore files honoured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from . import ignore


def walk(
    root: str,
    ignore_files: Sequence[str],
    leaves_out: Callable[[str, bool], bool],
    lets_in: Callable[[str, bool], bool] = lambda path, is_folder: False,
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yields (path relative to the root with `/`, entry) of everything that stays; a folder before what is in it.

    Args:
        ignore_files: names of files in .gitignore's language that count for their folder and those below.
        leaves_out: called with a path and whether it is a folder; excluded folders are not entered.
        lets_in: overrules the ignore files.

    Raises:
        OSError: something cannot be read.
    """

    def visit(folder: str, inherited: list[ignore.Rule]) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with os.scandir(os.path.join(root, folder)) as items:
            children = sorted(items, key=lambda item: item.name)
        rules = inherited
        for name in ignore_files:
            try:
                text = Path(root, folder, name).read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, IsADirectoryError):
                continue
            rules = [*rules, *ignore.parse(text, folder)]
        for item in children:
            path = f"{folder}/{item.name}" if folder else item.name
            is_folder = item.is_dir(follow_symlinks=False)
            if leaves_out(path, is_folder):
                continue
            if rules and ignore.ignored(path, is_folder, rules) and not lets_in(path, is_folder):
                continue
            yield path, item
            if is_folder:
                yield from visit(path, rules)

    return visit("", [])
